"""The live buffer of a follower drops the oldest ranges when it is full."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pullstream.logs.follow.records import LiveBuffer, RecordRange
from tests.subscriber.logs.follow.model import record


def a_range(number: int, size: int) -> RecordRange:
    return RecordRange(number, number + 1, (), size)


def run(after: int, to: int, size: int = 0) -> RecordRange:
    return RecordRange(after, to, [record(seq, 1) for seq in range(after + 1, to + 1)], size)


@given(sizes=st.lists(st.integers(0, 6), min_size=1, max_size=20))
def test_a_follower_buffer_keeps_the_newest_record_ranges_within_its_size_limits(
    sizes: list[int],
) -> None:
    """At most 4 records and 10 bytes, and the newest range in any case."""
    buffer = LiveBuffer(4, 10)
    added: list[RecordRange] = []
    for number, size in enumerate(sizes):
        added.append(a_range(number, size))
        buffer.add(added[-1])
        kept = next(
            added[start:]
            for start in range(max(len(added) - 4, 0), len(added))
            if sum(one.size for one in added[start:]) <= 10 or start == len(added) - 1
        )
        assert (len(buffer), buffer.first) == (len(kept), kept[0])
    assert [buffer.take() for _ in range(len(buffer))] == kept
    assert buffer.first is None


def test_a_follower_buffer_keeps_a_record_range_larger_than_the_limit_as_its_only_range() -> None:
    """The large range is dropped when the next range arrives."""
    buffer = LiveBuffer(4, 10)
    buffer.add(a_range(0, 11))
    assert len(buffer) == 1
    buffer.add(a_range(1, 1))
    assert buffer.take() == a_range(1, 1)
    buffer.add(a_range(2, 1))
    buffer.clear()
    assert (len(buffer), buffer.first) == (0, None)


def test_a_full_follower_buffer_drops_its_oldest_record_range() -> None:
    """The oldest run is dropped, so that the missing records are before the buffered ones."""
    buffer = LiveBuffer(5, 1000)
    for after in (0, 2, 4):
        buffer.add(run(after, after + 2))
    assert len(buffer) == 4
    assert buffer.take().from_seq == 2
    assert buffer.take().from_seq == 4
    assert buffer.first is None


def test_a_follower_buffer_drops_its_oldest_record_ranges_above_the_byte_limit() -> None:
    """The newest run stays, however large it is."""
    buffer = LiveBuffer(100, 1000)
    buffer.add(run(0, 1, size=600))
    buffer.add(run(1, 2, size=600))
    assert (len(buffer), buffer.first) == (1, run(1, 2, size=600))
    buffer.add(run(2, 3, size=5000))
    assert (len(buffer), buffer.first) == (1, run(2, 3, size=5000))


def test_record_ranges_without_records_count_towards_the_limit_of_a_follower_buffer() -> None:
    """Runs without records count too, because there can be any number of them."""
    buffer = LiveBuffer(3, 1000)
    for seq in range(10):
        buffer.add(RecordRange(seq, seq + 1))
    assert buffer.first == RecordRange(7, 8)
