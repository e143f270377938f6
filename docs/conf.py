"""The documentation site: `make site` builds it into build/site, and a warning is an error."""

import sys
from importlib.metadata import version as installed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "nvil"
author = "The nvil developers"
version = release = installed("nvil")
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.linkcode",
    "docstrings",
    "helps",
    "mathml",
    "results",
    "sources",
]
exclude_patterns = ["_extensions"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
myst_url_schemes = {
    "http": None,
    "https": None,
    "mailto": None,
    "source": "{{path}}",
}  # `source`: _extensions/sources.py

default_role = "py:obj"  # `name` in a docstring links to what it names, where the reference has it
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"nvil {release}"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_math_renderer = "mathml"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f5f9e", "color-brand-content": "#1f5f9e"},
    "dark_css_variables": {"color-brand-primary": "#8cbcea", "color-brand-content": "#8cbcea"},
}
