"""How `make docs` builds the site: the pages of this folder, and the Python API from its docstrings. Works offline."""

from sottovoce.version import VERSION

project = "Sottovoce"
author = "The Sottovoce authors"
copyright = "2026, The Sottovoce authors, Apache-2.0"
release = version = VERSION

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["README.md"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.xref_missing"]  # links to files of the repository that are no pages

default_role = "code"  # docstrings write `names` in single backticks
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"exclude-members": "model_config, model_post_init"}

html_theme = "furo"
html_title = f"Sottovoce {VERSION}"
html_static_path = []
html_copy_source = False
html_show_sphinx = False
