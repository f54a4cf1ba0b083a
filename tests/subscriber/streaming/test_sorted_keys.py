"""A sorted set of keys, compared with a plain set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pullstream.streaming.sorted_keys import SortedKeys

NUMBERS = st.integers(0, 300)


@given(st.lists(st.tuples(st.sampled_from(["add", "discard", "discard first"]), NUMBERS)))
def test_the_sorted_keys_collection_behaves_like_a_sorted_set(steps: list[tuple[str, int]]) -> None:
    """Whatever is added and removed, at the ends and in the middle."""
    keys: SortedKeys[tuple[int]] = SortedKeys()
    expected: set[tuple[int]] = set()
    for step, number in steps:
        key = (number,)
        if step == "add":
            keys.add(key)
            expected.add(key)
        else:
            key = min(expected, default=key) if step == "discard first" else key
            keys.discard(key)
            expected.discard(key)
        ordered = sorted(expected)
        assert (len(keys), keys.head(1000)) == (len(ordered), ordered)
        ends = (ordered[0], ordered[-1]) if ordered else (None, None)
        assert (keys.first, keys.last) == ends
        assert keys.between(key, None) == [one for one in ordered if one > key]
        assert keys.between(None, key) == [one for one in ordered if one < key]


def test_the_sorted_keys_collection_stays_sorted_and_frees_the_memory_of_removed_keys() -> None:
    """The removed keys do not stay in memory, and do not appear again."""
    keys: SortedKeys[tuple[int]] = SortedKeys()
    for number in range(1000):
        keys.add((number,))
        if number >= 100:
            keys.discard((number - 100,))
    assert keys.head(1000) == [(number,) for number in range(900, 1000)]
    assert len(keys._keys) < 300
    keys.clear()
    assert (len(keys), keys.first, keys.last) == (0, None, None)


def test_keys_can_be_added_to_the_sorted_keys_collection_after_all_were_removed() -> None:
    keys: SortedKeys[tuple[int]] = SortedKeys()
    keys.add((1,))
    keys.add((2,))
    keys.discard((1,))
    keys.clear()
    keys.add((3,))
    assert (len(keys), keys.first) == (1, (3,))
