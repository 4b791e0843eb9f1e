"""What a report reads of runs."""
