"""What a page is made of: tables, charts, style, how numbers are written."""
