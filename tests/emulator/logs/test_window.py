"""The window of a feed: records by number, after removals at any position."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from pullstream_emulator.engine import Record
from pullstream_emulator.logs.window import Window


def record(seq: int) -> Record:
    return Record(seq, "", b"x" * (seq % 5), 0)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 40)),
        st.tuples(st.just("pop"), st.integers(1, 40)),
        st.tuples(st.just("skip"), st.integers(1, 5)),
        st.tuples(st.just("remove"), st.integers(0, 60)),
        st.tuples(st.just("remove the oldest"), st.integers(1, 60)),
    ),
    max_size=40,
)


@given(STEPS, st.integers(1, 1000), st.integers(0, 100), st.integers(1, 30))
def test_a_feed_window_behaves_as_a_sorted_list_of_records(
    steps: list[tuple[str, int]], begin: int, after: int, limit: int
) -> None:
    """The test compares it with a list after every step."""
    window, model, end = Window(begin), list[Record](), begin
    for step, number in steps:
        if step == "append":
            new = [record(seq) for seq in range(end, end + number)]
            window.append(new)
            model += new
            end += number
        elif step == "skip":
            window.skip(number)
            end += number
        elif step == "pop":
            for _ in range(min(number, len(model))):
                assert window.pop() is model.pop(0)
        else:
            gone = [r for r in model if (r.seq + number) % 7 == 0]
            if step == "remove the oldest":
                gone = model[:number]
            assert window.remove([r.seq for r in gone] + [end + 1, 0]) == gone
            model = [r for r in model if r not in gone]
        assert list(window) == model
        assert (window.count, window.end) == (len(model), end)
        assert window.bytes == sum(r.size for r in model)
        assert window.oldest is (model[0] if model else None)
        assert window.earliest == (model[0].seq if model else end)
        missing = {seq for run in window.missing() for seq in range(run[0], run[1] + 1)}
        assert missing == set(range(window.earliest, end)) - {r.seq for r in model}
        position = begin - 1 + after
        assert list(window.after(position, limit)) == [r for r in model if r.seq > position][:limit]


def test_a_slice_of_a_long_feed_window_copies_only_the_slice() -> None:
    window = Window(1)
    window.append([record(seq) for seq in range(1, 200_001)])
    assert [r.seq for r in window.after(100_000, 3)] == [100_001, 100_002, 100_003]


def test_records_removed_at_the_front_of_a_feed_window_free_their_memory() -> None:
    """The rule holds however long the log becomes."""
    window = Window(1)
    tracemalloc.start()
    try:
        for seq in range(1, 50_001):
            window.append([record(seq)])
            if seq > 10:
                window.pop()
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()
