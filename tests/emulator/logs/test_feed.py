"""Records that one feed removes, and the state that remains."""

from __future__ import annotations

import gc
import weakref

import pytest

from pullstream_emulator.logs.gaps import LossFloors, LostRange, LostRanges
from pullstream_protocol.messages import feeds_pb2 as feeds
from tests.emulator.logs.driver import Driver


@pytest.fixture
def driver() -> Driver:
    return Driver()


def test_expired_records_are_reported_to_readers_as_a_gap_though_later_records_are_deleted(
    driver: Driver,
) -> None:
    """The gap is reported even if the expiry timer has not run yet."""
    driver.put(ttl_ms=1000)
    driver.append("a", "b")
    driver.clock.advance(1.5)
    driver.append("c")
    driver.clock.advance(0.6)
    assert driver.delete(before=4) == 1
    gap = driver.read().gap
    assert (gap.from_seq, gap.to_seq, gap.reason) == (1, 3, feeds.TTL)


def test_a_feed_of_a_deleted_topic_leaves_nothing_in_memory(driver: Driver) -> None:
    """The deletion includes the feed's timers, which may be due in a year."""
    driver.put(ttl_ms=1000)
    driver.append("a", key="k")
    feed, keys = weakref.ref(driver.feed()), weakref.ref(driver.feed().keys)
    driver.delete_topic()
    gc.collect()
    assert (feed(), keys()) == (None, None)


def test_a_sequence_number_in_a_lost_range_of_a_feed_is_mapped_to_that_range() -> None:
    trimmed = [LostRange(5, 6, feeds.SOURCE_TRIM), LostRange(9, 9, feeds.SOURCE_TRIM)]
    lost = LostRanges(trimmed)
    at = [
        next((i for i, each in enumerate(trimmed) if each is lost.at(n)), None) for n in range(11)
    ]
    assert at == [None] * 5 + [0, 0, None, None, 1, None]
    assert [lost.next_first(n) for n in range(11)] == [5] * 5 + [9] * 4 + [None] * 2
    floors = LossFloors()
    lost.fold(7, floors)
    assert (list(lost), floors.source) == (trimmed[1:], 6)
