"""A run: its folder, its documents, its life."""
