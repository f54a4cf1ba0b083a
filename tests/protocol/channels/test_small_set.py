"""SmallSet keeps the order of adding, whatever it was created from."""

from __future__ import annotations

import pytest

from pullstream_protocol.channels.index import Few, with_item, without_item


@pytest.mark.parametrize("count", [1, 4, 5, 100])
def test_a_small_set_contains_each_member_once_in_insertion_order(count: int) -> None:
    few: Few[int] = ()
    for number in [*range(count), 0]:
        few = with_item(few, number)
    assert list(few) == list(range(count))
    for number in [*range(0, count, 2), 0, -1]:
        few = without_item(few, number)
    assert list(few) == list(range(1, count, 2))


def test_a_small_set_whose_members_are_all_removed_is_empty_and_accepts_new_members() -> None:
    few: Few[int] = ()
    for number in range(10):
        few = with_item(few, number)
    for number in range(10):
        few = without_item(few, number)
    assert not few
    assert list(with_item(few, 1)) == [1]
