"""The migration guide as data: its table of imports, and its snippets by their headings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "migration.md"

_IMPORT_ROW = re.compile(r"^\| `((?:from|import) .+)` \| `((?:from|import) .+)` \|$", re.MULTILINE)
_SNIPPET = re.compile(r"^### (?P<title>.+)$(?P<text>(?:\n(?!##).*)*)", re.MULTILINE)
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Import:
    """A row of the table: the old and the new beginning of an import line."""

    before: str
    after: str


def imports() -> list[Import]:
    """Return the table of imports. `...` means any names."""
    rows = _IMPORT_ROW.findall(GUIDE.read_text(encoding="utf-8"))
    return [Import(before.removesuffix("..."), after.removesuffix("...")) for before, after in rows]


def snippets() -> dict[str, str]:
    """Return the Python block of each section that has one, by the section's heading."""
    found = {}
    for section in _SNIPPET.finditer(GUIDE.read_text(encoding="utf-8")):
        blocks = _PYTHON.findall(section["text"])
        assert len(blocks) <= 1, f"{section['title']}: more than one snippet under a heading"
        if blocks:
            found[section["title"]] = blocks[0]
    return found


def as_before(snippet: str) -> str:
    """Return the snippet in the form for the official client, with the old imports of the table."""
    lines = []
    for line in snippet.splitlines():
        row = next((row for row in imports() if line.startswith(row.after)), None)
        lines.append(line if row is None else row.before + line.removeprefix(row.after))
    return "\n".join(lines)
