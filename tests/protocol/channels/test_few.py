"""Small sets: in the order of adding, whatever they are made of."""

from __future__ import annotations

import pytest

from protocol.channels.few import Few, minus, plus


@pytest.mark.parametrize("count", [1, 4, 5, 100])
def test_members_are_there_once_in_the_order_of_adding(count: int) -> None:
    few: Few[int] = ()
    for number in [*range(count), 0]:
        few = plus(few, number)
    assert list(few) == list(range(count))
    for number in [*range(0, count, 2), 0, -1]:
        few = minus(few, number)
    assert list(few) == list(range(1, count, 2))


def test_nothing_is_left_of_what_grew_and_went() -> None:
    few: Few[int] = ()
    for number in range(10):
        few = plus(few, number)
    for number in range(10):
        few = minus(few, number)
    assert not few
    assert list(plus(few, 1)) == [1]
