"""The table of tested versions: in the terminal and in the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from tests.written_block import comments, write_block

PAGE = Path(__file__).parents[2] / "docs" / "spark-deploy.md"
BLOCK = "spark-matrix"
HEADINGS = ("format", "tested", "by", "read by", "result")


# Format, test and versions of a line, which are never the same in two.
Key = tuple[str, str, str]


@dataclass(frozen=True)
class Check:
    """One line of the table.

    Attributes:
        format: The table's format, or empty.
        what: The subject of the test.
        by: The versions that run it.
        read_by: The reader of the result with its version, or empty.
        result: The finding, or the fault.
        is_right: Whether nothing is wrong.
    """

    format: str
    what: str
    by: str
    read_by: str
    result: str
    is_right: bool

    @property
    def key(self) -> Key:
        return self.format, self.what, self.by

    @property
    def cells(self) -> tuple[str, ...]:
        return self.format, self.what, self.by, self.read_by, self.result


def written_checks(page: Path) -> list[Check]:
    """Return the lines of the table of a page."""
    begin, end = comments(BLOCK)
    block = page.read_text(encoding="utf-8").partition(begin)[2].partition(end)[0]
    lines = [line for line in block.splitlines() if line.startswith("| ")][2:]
    rows = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in lines)
    return [
        Check(format, what, by, read_by, result, is_right=True)
        for format, what, by, read_by, result in rows
    ]


def terminal_table(checks: Sequence[Check]) -> Table:
    view = Table(*HEADINGS)
    for check in checks:
        view.add_row(*check.cells, style=None if check.is_right else "red")
    return view


def write_docs(page: Path, checks: Sequence[Check], told: str) -> None:
    """Write the table into a page."""
    # The lines of a format are together, and those about no format come last.
    ordered = sorted(checks, key=lambda check: (not check.format, check.format))
    rows = [HEADINGS, ("---",) * len(HEADINGS), *(check.cells for check in ordered)]
    lines = ["| " + " | ".join(cells) + " |" for cells in rows]
    write_block(page, BLOCK, "\n".join([*lines, "", f"{told}."]))
