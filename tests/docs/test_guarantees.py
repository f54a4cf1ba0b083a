"""docs/guarantees.md: each promise names a test that exists."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "guarantees.md"
MOST_PROMISES = 60


@dataclass(frozen=True)
class Row:
    """A promise, and the named test."""

    promise: str
    test: str


def rows() -> list[Row]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines if "::" in line
    ]
    return [Row(row[0], row[-1].strip("`")) for row in cells]


ROWS = rows()


def test_the_table_of_promises_in_the_guarantees_page_can_be_parsed() -> None:
    """Otherwise a rewritten page could pass because no row is found."""
    assert 30 < len(ROWS) <= MOST_PROMISES


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.promise[:60])
def test_every_promise_of_the_guarantees_page_names_an_existing_test(row: Row) -> None:
    """The test must exist under that name."""
    assert row.promise.endswith("."), row.promise
    named = re.fullmatch(r"(?P<file>[\w/]+\.py)::(?P<test>test_\w+)", row.test)
    assert named, f"{row.promise}: {row.test!r} names no test"
    tree = ast.parse((TESTS / named["file"]).read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    assert named["test"] in {node.name for node in ast.walk(tree) if isinstance(node, functions)}


def test_every_row_of_the_guarantees_page_names_at_least_one_test() -> None:
    """A promise without a test is not listed."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    headers = [line for line in lines if line.startswith("| promise |")]
    assert len(lines) - len(headers) == len(ROWS)
