"""The command line: one file per command group, thin over `api.py` and the rooms."""
