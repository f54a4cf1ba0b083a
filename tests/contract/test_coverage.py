"""Checks that each numbered contract has a test with its number in the name."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

# The number of contracts in each seed: keyed channels, durable subscriptions, feeds, pulls.
CONTRACTS = {0: 34, 1: 15, 2: 28, 3: 17}


def named() -> set[tuple[int, int]]:
    """Return the contracts in the test names of this folder. test_c2_20_... belongs to C2.20."""
    found = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                ids = re.findall(r"(?<=_)c(\d)_(\d+)(?=_)", node.name)
                found |= {(int(seed), int(number)) for seed, number in ids}
    return found


@pytest.mark.parametrize("seed", CONTRACTS)
def test_each_contract_has_a_test(seed: int) -> None:
    expected = {(seed, number) for number in range(1, CONTRACTS[seed] + 1)}
    assert {contract for contract in named() if contract[0] == seed} == expected
