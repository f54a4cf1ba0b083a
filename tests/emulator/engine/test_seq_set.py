"""Sets and tables of sequence numbers behave as plain sets and dicts."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pullstream_emulator.engine.seq_set import (
    CHUNK_BITS,
    SeqCounts,
    SeqSet,
    SeqTable,
    bit_runs,
    masks_of,
    run_of,
    runs_of,
)

# Numbers near the borders of chunks, and runs over several chunks.
numbers = st.one_of(st.integers(1, 40), st.integers(1000, 1060), st.integers(2040, 2060))
runs = st.tuples(numbers, st.integers(1, 2100)).map(lambda run: range(run[0], sum(run)))
sets: st.SearchStrategy[set[int]] = st.one_of(st.sets(numbers, max_size=30), runs.map(set))


def seq_set(numbers: set[int]) -> SeqSet:
    return SeqSet(list(numbers))


@given(sets, sets)
def test_seq_set_operations_agree_with_those_of_a_plain_set(
    some: set[int], others: set[int]
) -> None:
    """Unions, intersections and differences are new sets."""
    one, two = seq_set(some), seq_set(others)
    assert list(one | two) == sorted(some | others)
    assert list(one & two) == sorted(some & others)
    assert list(one - two) == sorted(some - others)
    assert (list(one), list(two)) == (sorted(some), sorted(others))
    assert (one == two) == (some == others)


@given(sets, sets, sets)
def test_adding_to_and_discarding_from_a_seq_set_agrees_with_a_plain_set(
    some: set[int], more: set[int], gone: set[int]
) -> None:
    """Numbers are added and removed in any order."""
    changed = seq_set(some)
    changed.discard(masks_of(list(gone)))
    changed.add(masks_of(list(more)))
    expected = (some - gone) | more
    assert list(changed) == sorted(expected)
    assert (len(changed), bool(changed)) == (len(expected), bool(expected))
    assert changed.first == min(expected, default=None)
    assert changed.copy() == changed


@given(sets, numbers)
def test_the_methods_contains_and_above_of_a_seq_set_agree_with_a_plain_set(
    some: set[int], number: int
) -> None:
    """A number is in the set or not. The numbers above it are a new set."""
    asked = seq_set(some)
    above = sorted(each for each in some if each > number)
    assert (number in asked) == (number in some)
    assert list(asked.above(number)) == list(asked.after(number)) == above


@given(sets)
def test_the_runs_of_a_seq_set_are_as_long_as_possible_and_contain_all_its_numbers(
    some: set[int],
) -> None:
    """Runs of consecutive numbers are as long as possible, and give the set again."""
    found = list(seq_set(some).runs())
    assert sorted(some) == [number for first, end in found for number in range(first, end)]
    assert all(end < first for (_, end), (first, _) in pairwise(found))
    again = SeqSet()
    for first, end in found:
        again.add(run_of(first, end))
    assert again == seq_set(some)


@given(sets, st.integers(1, 1500))
def test_pop_first_of_a_seq_set_removes_and_returns_each_number_once_in_order(
    some: set[int], most: int
) -> None:
    """Each number is taken once, in ascending order."""
    left = seq_set(some)
    taken: list[int] = []
    while some_of_them := left.pop_first(most):
        assert len(some_of_them) <= most
        taken += some_of_them
    assert taken == sorted(some)


@given(sets, st.integers(1, 3000))
def test_first_run_of_a_seq_set_returns_the_lowest_numbers_up_to_the_first_gap(
    some: set[int], most: int
) -> None:
    """A run goes over the borders of chunks."""
    found = seq_set(some).first_run(most)
    first = min(some, default=0)
    count = 0
    while count < most and first + count in some:
        count += 1
    assert found == range(first, first + count)


@given(st.lists(numbers, min_size=1), runs)
def test_runs_of_numbers_are_the_same_in_any_order_and_with_repeated_numbers(
    some: list[int], run: range
) -> None:
    """A range is one run."""
    assert list(runs_of(some)) == list(seq_set(set(some)).runs())
    assert list(runs_of(run)) == [(run.start, run.stop)]


@given(st.integers(0, 1 << 80))
def test_the_runs_of_ones_in_an_integer_give_the_integer(bits: int) -> None:
    """The runs do not touch each other."""
    found = list(bit_runs(bits))
    assert sum((1 << end) - (1 << first) for first, end in found) == bits
    assert all(end < first for (_, end), (first, _) in pairwise(found))


@given(st.lists(st.tuples(sets, st.integers(0, 9)), max_size=5), st.lists(sets, max_size=9), sets)
def test_seq_counts_agree_with_a_counter(
    added: list[tuple[set[int], int]], taken: list[set[int]], asked: set[int]
) -> None:
    """Numbers are counted several times at once, and are subtracted as often as they were added."""
    counts, expected = SeqCounts(), Counter[int]()
    for some, times in added:
        counts.add(masks_of(list(some)), times)
        expected.update(dict.fromkeys(some, times))
    for some in taken:
        gone = {seq for seq in some if expected[seq]}
        expected.subtract(gone)
        zero = {seq for seq in gone if not expected[seq]}
        assert set(SeqSet.of(counts.subtract(masks_of(list(gone))))) == zero
    above = {seq for seq in asked if expected[seq]}
    assert set(SeqSet.of(counts.counted(masks_of(list(asked))))) == above


@given(sets, sets, sets)
def test_a_seq_table_behaves_as_a_dict(first: set[int], second: set[int], gone: set[int]) -> None:
    """Values are set together or one by one, and are removed in any order."""
    table: SeqTable[str] = SeqTable()
    table.put_all(sorted(first), [str(seq) for seq in sorted(first)])
    table.put_all(sorted(second - first), [str(seq) for seq in sorted(second - first)])
    removed = table.remove(masks_of(list(gone)))
    found = {
        start + at: value
        for start, values in removed
        for at, value in enumerate(values)
        if value is not None
    }
    assert found == {seq: str(seq) for seq in (first | second) & gone}
    left = (first | second) - gone
    assert {seq for seq in first | second | gone if table.get(seq) == str(seq)} == left
    assert (table.first_chunk is None) == (not left)
    values = []
    while chunk := table.pop_chunk():
        values += chunk
    assert sorted(values, key=int) == [str(seq) for seq in sorted(left)]


@given(st.integers(0, 3000), st.integers(1, 2100), sets)
def test_values_of_consecutive_numbers_are_replaced_over_several_chunks(
    first: int, count: int, gone: set[int]
) -> None:
    """Numbers whose value was removed before have none afterwards."""
    table: SeqTable[str] = SeqTable()
    table.put(max(first - 1, 0), "before")
    seqs = range(max(first, 1), max(first, 1) + count)
    table.put_all(seqs, ["run"] * count)
    table.put(seqs[-1] + 1, "after")
    table.remove(masks_of(sorted(gone.intersection(seqs))))
    table.replace("run", seqs[0], [str(seq) for seq in seqs])
    expected = {seqs[0] - 1: "before", seqs[-1] + 1: "after"}
    expected |= {seq: str(seq) for seq in seqs if seq not in gone}
    found = {seq: value for chunk, _, _ in table.last_items() for seq, value in table.items(chunk)}
    assert found == expected
    last: dict[int, int] = {}
    for seq in sorted(expected):
        last[seq >> CHUNK_BITS] = seq
    assert {chunk: seq for chunk, seq, _ in table.last_items()} == last
    assert all(expected[seq] == value for _, seq, value in table.last_items())
