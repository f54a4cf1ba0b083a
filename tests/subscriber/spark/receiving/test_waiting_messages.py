"""Waiting messages: each message has one place and one lease until it is settled."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from pullstream.columns.portions import Unit, ack_ids_in, messages_of
from pullstream.message import Message
from pullstream.spark.protocol.layout import Segment
from pullstream.spark.receiving.message_group import rows_of
from pullstream.spark.receiving.waiting_messages import Arrival, WaitingMessages
from tests.subscriber.spark.receiving.messages import batch, flat, group_of, portion

IDS = [str(number) for number in range(12)]


def segment(number: int) -> Segment:
    return Segment("r", number)


def ack_ids(messages: list[Message]) -> list[str]:
    return [message.ack_id for message in messages]


def arrive(waiting: WaitingMessages, messages: Sequence[Unit]) -> Arrival:
    return waiting.arrived(group_of(messages))


def cut(waiting: WaitingMessages, messages: int, size: int = 1000) -> list[Message]:
    """Cut messages, and check that the rows are made of the newest deliveries."""
    groups = waiting.cut(messages, size)
    found = flat(groups)
    if groups:
        made_now = group_of(found).rows
        assert rows_of(groups, None) == made_now
    return found


def hold(waiting: WaitingMessages, number: int, messages: int) -> list[Message]:
    found = cut(waiting, messages)
    waiting.hold(segment(number))
    return found


def test_waiting_messages_are_cut_in_the_order_of_arrival() -> None:
    """A cut takes messages up to the limits, and at least one."""
    waiting = WaitingMessages()
    arrive(waiting, batch(["a", "b", "c"], share=10))
    arrive(waiting, batch(["large"], share=100))
    for limits, expected in (
        ((2, 1000), ["a/1", "b/1"]),
        ((10, 10), ["c/1"]),
        ((10, 10), ["large/1"]),
        ((10, 10), []),
    ):
        assert ack_ids(cut(waiting, *limits)) == expected
        waiting.hold(segment(len(waiting.segments) + 1))
    assert (waiting.buffered, waiting.held) == (0, 4)


def test_waiting_messages_are_a_full_batch_when_messages_or_bytes_reach_the_limit() -> None:
    """The limit that is reached first counts."""
    waiting = WaitingMessages()
    arrive(waiting, batch(["a", "b"], share=10))
    assert waiting.has(2, 1000)
    assert waiting.has(1000, 20)
    assert not waiting.has(3, 21)
    waiting.cut(10, 1000)
    assert not waiting.has(1, 1)


def test_a_redelivery_replaces_the_earlier_delivery_of_a_waiting_message() -> None:
    """It makes no new row, whether the message is buffered, cut or held."""
    waiting = WaitingMessages()
    arrive(waiting, batch(["held", "cut", "a", "b"]))
    hold(waiting, 1, 1)
    cut(waiting, 1)
    arrival = arrive(waiting, batch(["held", "cut", "a", "new"], delivery=2))
    assert arrival.fresh == 1
    assert ack_ids(list(arrival.outdated)) == ["held/1", "cut/1", "a/1"]
    assert ack_ids(flat(waiting.take_held(segment(1)))) == ["held/2"]
    waiting.hold(segment(2))
    assert ack_ids(flat(waiting.take_held(segment(2)))) == ["cut/2"]
    assert ack_ids(cut(waiting, 9)) == ["a/2", "b/1", "new/2"]


def test_the_newer_of_two_deliveries_that_arrive_together_is_a_waiting_message() -> None:
    waiting = WaitingMessages()
    arrival = arrive(waiting, [*batch(["a"]), *batch(["a"], delivery=2)])
    assert (arrival.fresh, ack_ids(list(arrival.outdated))) == (1, ["a/1"])
    assert ack_ids(cut(waiting, 9)) == ["a/2"]


def test_messages_of_a_failed_segment_wait_again_with_their_newest_leases() -> None:
    """They go before newer ones, and are not younger than before."""
    waiting = WaitingMessages()
    arrive(waiting, batch(["a", "b"]))
    cut(waiting, 9)
    arrive(waiting, batch(["c"]))
    arrive(waiting, batch(["b"], delivery=2))
    waiting.put_back()
    assert waiting.has(3, 30)
    assert not waiting.has(4, 31)
    assert ack_ids(cut(waiting, 9)) == ["a/1", "b/2", "c/1"]


def test_a_lost_lease_removes_a_waiting_message_only_before_its_segment() -> None:
    """Messages in a segment stay and wait for their redelivery, and so do redelivered messages."""
    waiting = WaitingMessages()
    old = batch(["a", "b"])
    arrive(waiting, old)
    hold(waiting, 1, 1)
    renewed = batch(["c"])
    arrive(waiting, renewed)
    arrive(waiting, batch(["c"], delivery=2))
    waiting.lost([*old, *renewed])
    assert (waiting.buffered, waiting.held) == (1, 1)
    assert ack_ids(cut(waiting, 9)) == ["c/2"]


def test_a_waiting_message_that_lost_its_lease_is_ordered_by_the_time_of_its_redelivery() -> None:
    """A redelivery of a message that is still buffered keeps its place."""
    waiting = WaitingMessages()
    for delivery in (1, 2, 3):
        lost = batch(["a", "b"], delivery=delivery)
        arrive(waiting, lost)
        waiting.lost(lost)
    arrive(waiting, batch(["c", "a"]))
    arrive(waiting, batch(["b", "c"], delivery=4))
    assert waiting.buffered == 3
    assert ack_ids(cut(waiting, 9)) == ["c/4", "a/1", "b/4"]


def test_messages_that_lost_their_leases_use_no_memory_as_waiting_messages() -> None:
    """No segment is requested meanwhile, and the same messages come again and again."""
    waiting = WaitingMessages()
    sizes = []
    tracemalloc.start()
    for delivery in range(20):
        lost = batch([str(number) for number in range(500)], delivery=delivery)
        arrive(waiting, lost)
        waiting.lost(lost)
        del lost
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert waiting.buffered == 0
    assert max(sizes[10:]) < 1.2 * max(sizes[:10])


def test_rows_of_waiting_messages_are_built_when_they_arrive() -> None:
    """Segments take them by their own size, and not by response."""
    waiting = WaitingMessages()
    messages = batch([str(number) for number in range(10)])
    arrive(waiting, messages[:4])
    arrive(waiting, messages[4:])
    for message in messages:
        # A row that is made from now on has another id.
        message.received.message.message_id += "!"
    ids = []
    for number in (1, 2, 3, 4):
        rows = rows_of(waiting.cut(3, 1000), None)
        ids += rows.column("message_id").to_pylist()
        waiting.hold(segment(number))
    assert ids == [str(number) for number in range(10)]


def test_rows_of_messages_that_no_longer_wait_are_freed() -> None:
    """The other rows are not made again."""
    waiting = WaitingMessages()
    messages = batch([str(number) for number in range(6)], data=bytes(1000))
    arrive(waiting, messages)
    waiting.lost([messages[0], messages[2], messages[4], messages[5]])
    for message in messages:
        message.received.message.message_id += "!"
    (group,) = waiting.cut(9, 10_000)
    assert group.rows is not None
    assert group.rows.column("message_id").to_pylist() == ["1", "3"]
    assert 2000 <= group.rows.get_total_buffer_size() < 3000


def test_the_oldest_waiting_message_may_be_buffered_or_cut_or_held() -> None:
    waiting = WaitingMessages()
    arrive(waiting, batch(["a", "b", "c"], published=[10, 20, 30]))
    hold(waiting, 1, 1)
    cut(waiting, 1)
    assert waiting.oldest == 10
    waiting.take_held(segment(1))
    assert waiting.oldest == 20
    waiting.hold(segment(2))
    waiting.take_held(segment(2))
    assert waiting.oldest == 30
    waiting.lost(hold(waiting, 3, 1))
    assert waiting.oldest == 30
    waiting.take_held(segment(3))
    assert waiting.oldest is None


# The place of a message: in the buffer, cut, or else the number of its segment.
BUFFER, CUT = 0, -1


class WaitingMachine(RuleBasedStateMachine):
    """Random deliveries, segments and commits, compared to a model with a place per message."""

    segments = Bundle("segments")

    def __init__(self) -> None:
        super().__init__()
        self.waiting = WaitingMessages()
        self.place: dict[str, int] = {}
        # The response of the newest delivery, and its place there.
        self.newest: dict[str, tuple[Sequence[Unit], int]] = {}
        self.deliveries = 0
        self.number = 0

    @rule(ids=st.lists(st.sampled_from(IDS), max_size=6), is_portion=st.booleans())
    def deliver(self, ids: list[str], is_portion: bool) -> None:
        self.deliveries += 1
        units: Sequence[Unit] = batch(ids, delivery=self.deliveries)
        if is_portion and ids:
            units = [portion(ids, delivery=self.deliveries)]
        known = [one for one in ids if one in self.place]
        arrival = arrive(self.waiting, units)
        twice = len(ids) - len(set(ids))
        assert len(arrival.outdated) == len(set(known)) + twice
        for place, one in enumerate(ids):
            self.place.setdefault(one, BUFFER)
            self.newest[one] = (units, place)

    def newest_of(self, ids: Sequence[str]) -> list[Message]:
        """Return the newest deliveries, which makes messages of portions."""
        found = (self.newest[one] for one in ids)
        return [messages_of(units)[place] for units, place in found]

    @rule(
        target=segments,
        limit=st.integers(1, 5),
        redelivered=st.sampled_from(IDS),
        is_portion=st.booleans(),
    )
    def write(self, limit: int, redelivered: str, is_portion: bool) -> int:
        ids = self.cut(limit)
        if redelivered in self.place:
            self.deliver([redelivered], is_portion)
        self.number += 1
        self.waiting.hold(segment(self.number))
        for one in ids:
            self.place[one] = self.number
        return self.number

    def cut(self, limit: int) -> list[str]:
        buffered = [one for one, place in self.place.items() if place == BUFFER][:limit]
        groups = self.waiting.cut(limit, 1_000_000)
        assert [str(key) for group in groups for key in group.keys] == buffered
        if groups:
            rows = rows_of(groups, None)
            assert rows.column("message_id").to_pylist() == buffered
        for one in buffered:
            self.place[one] = CUT
        return buffered

    @rule(limit=st.integers(1, 5), redelivered=st.sampled_from(IDS), is_portion=st.booleans())
    def fail_to_write(self, limit: int, redelivered: str, is_portion: bool) -> None:
        ids = self.cut(limit)
        if redelivered in self.place:
            self.deliver([redelivered], is_portion)
        self.waiting.put_back()
        back = dict.fromkeys(ids, BUFFER)
        rest = {one: place for one, place in self.place.items() if one not in back}
        self.place = {**back, **rest}

    @rule(number=segments)
    def settle_held(self, number: int) -> None:
        ids = [one for one, place in self.place.items() if place == number]
        found = self.waiting.take_held(segment(number))
        assert sorted(str(key) for group in found for key in group.keys) == sorted(ids)
        ack_ids = sorted(one for group in found for one in group.ack_ids or ack_ids_in(group.units))
        assert ack_ids == sorted(one.ack_id for one in self.newest_of(ids))
        for one in ids:
            del self.place[one], self.newest[one]

    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        buffered = [one for one, place in self.place.items() if place == BUFFER]
        if buffered:
            one = data.draw(st.sampled_from(buffered))
            self.waiting.lost(self.newest_of([one]))
            del self.place[one], self.newest[one]

    @invariant()
    def everything_is_in_one_place(self) -> None:
        buffered = [one for one, place in self.place.items() if place == BUFFER]
        assert self.waiting.buffered == len(buffered)
        assert self.waiting.held == len(self.place) - len(buffered)
        assert self.waiting.has(len(buffered), 10 * len(buffered))
        assert not self.waiting.has(len(buffered) + 1, 10 * len(buffered) + 1)


TestWaitingMessages = WaitingMachine.TestCase
TestWaitingMessages.settings = settings(max_examples=50, stateful_step_count=30)
