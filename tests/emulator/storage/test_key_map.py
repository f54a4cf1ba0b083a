"""Sequence numbers are reserved on disk before publishers need them."""

from __future__ import annotations

from pullstream_emulator.engine.settings.durability import Durability
from pullstream_emulator.storage.key_map import MAX_RESERVE, RESERVE, TopicEntry
from pullstream_emulator.storage.writer import WriteBatch


def test_a_reservation_is_larger_if_publishers_waited_for_the_last_one() -> None:
    """A slow disk would otherwise set the rate of publishing, at one block for each write."""
    topic = TopicEntry(1, Durability.DISK)
    first, second, third = WriteBatch(), WriteBatch(), WriteBatch()
    topic.reserve(first)
    first.written.set_result(None)
    topic.head = RESERVE // 2 + 1
    assert topic.needs_more
    topic.enlarge_block()
    topic.reserve(second)
    assert (topic.reserved, topic.safe) == (topic.head + RESERVE, RESERVE)

    topic.head = RESERVE + 2
    assert topic.needs_more
    assert not topic.is_safe
    topic.enlarge_block()
    topic.reserve(third)
    assert topic.reserved == topic.head + 2 * RESERVE
    assert not topic.needs_more
    second.written.set_result(None)
    third.written.set_result(None)
    assert topic.is_safe


def test_a_reservation_is_larger_if_a_publish_waited_before_it_got_numbers() -> None:
    topic = TopicEntry(1, Durability.DISK)
    first, second = WriteBatch(), WriteBatch()
    topic.reserve(first)
    first.written.set_result(None)
    topic.head = RESERVE - 10
    topic.reserve(second)
    assert topic.has_numbers(10)
    assert not topic.has_numbers(11)
    topic.waited = True
    second.written.set_result(None)
    assert topic.has_numbers(11)
    for _ in range(2):
        topic.enlarge_block()
        assert topic.block == 2 * RESERVE


def test_a_reservation_keeps_its_size_while_the_disk_is_fast_enough() -> None:
    """After a crash the numbers continue behind the reservation: it is not larger than needed."""
    topic = TopicEntry(1, Durability.DISK)
    for _ in range(5):
        group = WriteBatch()
        topic.enlarge_block()
        topic.reserve(group)
        group.written.set_result(None)
        topic.head += RESERVE // 2 + 1
    assert topic.block == RESERVE


def test_a_reservation_has_at_most_four_million_numbers() -> None:
    topic = TopicEntry(1, Durability.DISK)
    for _ in range(20):
        topic.reserve(WriteBatch())
        topic.head = topic.reserved
        topic.enlarge_block()
    assert topic.block == MAX_RESERVE == 1 << 22
