"""Each hole that a review found in the protocol is closed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.subscriber.spark.protocol.holes import HOLES

CASES = [
    pytest.param(case, id=f"{number}-{case.__name__}")
    for number, cases in HOLES.items()
    for case in cases
]


@pytest.mark.parametrize("case", CASES)
def test_the_hole_is_closed(case: Callable[[], None]) -> None:
    case()


def test_each_of_the_twenty_holes_has_a_case() -> None:
    assert list(HOLES) == list(range(1, 21))
