"""The documents as a site (sphinx-build -W docs build/docs); a broken link is an error."""

from __future__ import annotations

project = "patchkit"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4
exclude_patterns: list[str] = []
nitpicky = True
html_theme = "alabaster"
