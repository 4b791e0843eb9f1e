"""The script of the page, whole and unchanged on every page, so that its hash is known before a page is written.

The page works without it. It shows the values behind figures, prints folded text, and reloads the page of a training
that goes on.
"""

from importlib import resources

SCRIPT = (resources.files("sottovoce.reports.drawing") / "page.js").read_text(encoding="utf-8")
