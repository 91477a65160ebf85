# SPDX-License-Identifier: GPL-2.0
"""What sphinx-build makes of this folder; "make docs" calls it."""
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
sys.dont_write_bytecode = True

project = "twheel"
copyright = "The twheel authors"
extensions = ["sphinx.ext.autosectionlabel", "reference"]
autosectionlabel_prefix_document = True

# Sections of several pages may have one name; those are not referred to by it.
suppress_warnings = ["autosectionlabel.*"]
highlight_language = "none"
primary_domain = "c"
c_id_attributes = ["__user"]

html_theme = "alabaster"
html_theme_options = {
    "description": "One file descriptor, a million timers",
    "page_width": "1100px",
    "sidebar_width": "240px",
    "font_family": "sans-serif",
}
html_static_path = ["static"]
html_css_files = ["twheel.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False

# The manual pages stand beside the others, in HTML; reference.py renders them.
manpages_url = "man/{page}.{section}.html"
