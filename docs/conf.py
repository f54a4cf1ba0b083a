"""Sphinx configuration of the documentation: `make docs` builds build/site."""

from __future__ import annotations

import re
from typing import Any

from pullstream_protocol.version import VERSION

project = "pullstream"
release = version = VERSION
copyright = "the pullstream authors"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["generate.py", "conf.py"]
html_theme = "furo"
html_title = "pullstream"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_extra_path = ["llms.txt", "reference/openapi.json"]
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}

# Headings are targets for links with #, as on a forge.
myst_heading_anchors = 4
myst_enable_extensions = ["fieldlist"]

# Attributes are listed in their class, without separate entries.
napoleon_use_ivar = True
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"
autodoc_default_options = {"exclude-members": "__new__"}
highlight_language = "text"
# Otherwise --option becomes a dash.
smartquotes = False
# Text in single backquotes is code, as in the docstrings.
default_role = "code"
# Only names that are documented have a page.
nitpicky = False
# Prompts are not copied.
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True

_DASHES = str.maketrans("._", "--")
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)]+)\)")


def _inside_link(link: re.Match[str]) -> str:
    """Return a link to a file of the repository as a link within the site."""
    text, target = link[1], link[2]
    if target.startswith("samples/") and target.endswith(".py"):
        return f"[{text}](samples.md#{target.removeprefix('samples/').translate(_DASHES)})"
    if target.startswith("README.md"):
        return f"[{text}](index.md)"
    return f"{text} (`{target}`)"


def _read(app: Any, name: str, source: list[str]) -> None:
    if not name.startswith("reference/"):
        source[0] = _OUTSIDE.sub(_inside_link, source[0])


def _docstring(
    app: Any, what: str, name: str, thing: object, options: Any, lines: list[str]
) -> None:
    """Mark indented examples as code, and keep napoleon from taking a sentence for a type.

    Napoleon reads "The calls for feeds: client.feeds" of a property as a type and a description.
    """
    if what in ("property", "attribute") and lines:
        lines[0] = lines[0].replace(": ", " \N{EN DASH} ", 1)
    place = 1
    while place < len(lines):
        before = next((line for line in reversed(lines[:place]) if line.strip()), "")
        if lines[place].startswith("    ") and not lines[place - 1].strip() and before[:1].strip():
            lines[place:place] = [".. code-block:: python", ""]
            place += 2
            while place < len(lines) and (not lines[place].strip() or lines[place][:1] == " "):
                place += 1
        place += 1


def setup(app: Any) -> None:
    """Register the conversions of pages and docstrings."""
    app.connect("source-read", _read)
    # Before napoleon, whose priority is 500.
    app.connect("autodoc-process-docstring", _docstring, priority=400)
