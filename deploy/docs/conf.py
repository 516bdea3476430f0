"""Sphinx: the site of these pages, with search (`make docs`)."""

project = "Edge federation"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["generator", "_build"]
html_theme = "furo"
html_title = "Edge federation"
html_extra_path: list[str] = []
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist"]
# Links to files outside this folder point into the repository.
suppress_warnings = ["myst.xref_missing"]
