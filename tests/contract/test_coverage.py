"""Checks that each numbered contract has a text in README.md, and a test with its number."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
# The number of contracts in each part: keyed channels, durable subscriptions, feeds, pulls.
CONTRACTS = {0: 34, 1: 15, 2: 28, 3: 17}


def proven() -> set[tuple[int, int]]:
    """Return the contracts in the test names of this folder: test_..._c2_20 belongs to C2.20."""
    found = set()
    for path in FOLDER.glob("test_*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                ids = re.findall(r"_c(\d)_(\d+)(?=_c\d_|$)", node.name)
                found |= {(int(part), int(number)) for part, number in ids}
    return found


def described() -> list[tuple[int, int]]:
    """Return the contracts that begin a line of README.md and have a sentence, in its order."""
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"^- \*\*C(\d)\.(\d+)\*\* \S[^.]{10,}\.", text, re.MULTILINE)
    return [(int(part), int(number)) for part, number in found]


@pytest.mark.parametrize("part", CONTRACTS)
def test_each_numbered_contract_has_a_contract_test(part: int) -> None:
    expected = {(part, number) for number in range(1, CONTRACTS[part] + 1)}
    assert {contract for contract in proven() if contract[0] == part} == expected


def test_each_numbered_contract_has_a_description_in_the_readme() -> None:
    """The texts are in the order of the numbers."""
    assert described() == [
        (part, number) for part, count in CONTRACTS.items() for number in range(1, count + 1)
    ]
