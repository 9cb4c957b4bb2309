"""Sphinx: `make docs` builds the site from these pages, with warnings as errors."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from fcfl import __version__

project = "fcfl"
author = "The fcfl developers"
copyright = "The fcfl developers, Apache-2.0"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.napoleon",
    "sphinx_design",
    "generated_pages",
]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

suppress_warnings = ["ref.python"]  # one word, such as n_rows, is a field of several classes
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings describe parameters; signatures stay readable
napoleon_google_docstring = False

html_theme = "pydata_sphinx_theme"
html_title = "fcfl"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_sidebars = {page: [] for page in ("index", "start", "gallery")}  # nothing below
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 7,
    "navbar_align": "left",
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_context = {"default_mode": "auto"}
html_show_sourcelink = False
