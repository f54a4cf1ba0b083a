"""Blocks of the documentation that programs write: the text between two comments of a page."""

from __future__ import annotations

import re
from pathlib import Path


def comments(name: str) -> tuple[str, str]:
    """Return the comments at the beginning and at the end of a block."""
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def write_block(page: Path, name: str, text: str) -> None:
    """Replace the text of a block, which the page must have once."""
    begin, end = comments(name)
    old = page.read_text(encoding="utf-8")
    new, found = re.subn(
        f"{begin}.*{end}", lambda _: f"{begin}\n{text}\n{end}", old, flags=re.DOTALL
    )
    if found != 1:
        raise SystemExit(f"{page} must have one {begin} ... {end}")
    page.write_text(new, encoding="utf-8")
