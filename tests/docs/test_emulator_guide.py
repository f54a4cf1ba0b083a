"""Tests of docs/emulator.md: tests support the claims of its table, and its example runs."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "emulator.md"


@dataclass(frozen=True)
class Row:
    """A feature, the page's claim about the broker, and the named test."""

    feature: str
    ours: str
    test: str


def rows() -> list[Row]:
    text = PAGE.read_text(encoding="utf-8").split("\n## Features\n")[1].split("\n## ")[0]
    cells = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    stripped = [[cell.strip(" `") for cell in row] for row in cells[2:]]
    return [Row(row[0], row[1], row[-1]) for row in stripped if len(row) == 5]


CLAIMS = [row for row in rows() if row.ours.startswith(("yes", "partly"))]


def test_the_table_of_claims_in_the_emulator_guide_can_be_parsed() -> None:
    """Otherwise a rewritten page could pass because no row is found."""
    assert len(CLAIMS) > 30
    assert {"yes", "stored"} <= {row.ours for row in rows()}


@pytest.mark.parametrize("row", CLAIMS, ids=lambda row: row.feature)
def test_every_claim_of_the_emulator_guide_names_an_existing_test(row: Row) -> None:
    """The test must exist under that name."""
    named = re.fullmatch(r"(?P<file>[\w/]+\.py)::(?P<test>test_\w+)", row.test)
    assert named, f"{row.feature}: {row.test!r} names no test"
    tree = ast.parse((TESTS / named["file"]).read_text(encoding="utf-8"))
    assert named["test"] in {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_the_example_program_of_the_emulator_guide_runs_without_an_error() -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    exec(compile(example, PAGE.name, "exec"), {})
