"""The ledger tracks each message, and returns the messages to acknowledge after a commit."""

from __future__ import annotations

import tracemalloc
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from pullstream.message import Message
from pullstream.spark.session.lease_ledger import ArrivedGroup, LeaseLedger
from pullstream.spark.spool.message_keys import Key, key_of
from tests.subscriber.spark.session.messages import batch

IDS = [str(number) for number in range(12)]


def ack_ids(messages: list[Message]) -> list[str]:
    return [message.ack_id for message in messages]


def arrive(ledger: LeaseLedger, messages: list[Message]) -> ArrivedGroup:
    return ledger.arrived(messages, [message.message_id for message in messages])


def test_messages_are_cut_in_the_order_in_which_they_came() -> None:
    """A cut takes messages up to the limits, and at least one."""
    ledger = LeaseLedger(set())
    arrive(ledger, batch(["a", "b", "c"], share=10))
    arrive(ledger, batch(["large"], share=100))
    assert ack_ids(ledger.cut(1, 2, 1000)) == ["a/1", "b/1"]
    assert ack_ids(ledger.cut(2, 10, 10)) == ["c/1"]
    assert ack_ids(ledger.cut(3, 10, 10)) == ["large/1"]
    assert ledger.cut(4, 10, 10) == []
    assert (ledger.buffered, ledger.spooled, ledger.segments) == (0, 4, [1, 2, 3])


def test_enough_is_messages_or_bytes() -> None:
    """The limit that is reached first counts."""
    ledger = LeaseLedger(set())
    arrive(ledger, batch(["a", "b"], share=10))
    assert ledger.has(2, 1000)
    assert ledger.has(1000, 20)
    assert not ledger.has(3, 21)
    ledger.cut(1, 10, 1000)
    assert not ledger.has(1, 1)


def test_a_redelivery_takes_the_place_of_what_it_repeats() -> None:
    """A redelivery replaces the earlier delivery in the buffer, an open segment or a restored one.

    It makes no new row.
    """
    ledger = LeaseLedger(set())
    ledger.restore(1, ["r"])
    arrive(ledger, batch(["s"]))
    ledger.cut(2, 1, 1000)
    arrive(ledger, batch(["a", "b"]))
    arrival = arrive(ledger, batch(["r", "s", "a"], delivery=2))
    assert (arrival.fresh, ack_ids(arrival.outdated)) == (0, ["s/1", "a/1"])
    assert ack_ids(ledger.committed(1)) == ["r/2"]
    assert ack_ids(ledger.committed(2)) == ["s/2"]
    assert ack_ids(ledger.cut(3, 9, 1000)) == ["a/2", "b/1"]


def test_a_message_twice_in_one_list_is_one() -> None:
    """The newer delivery stays."""
    ledger = LeaseLedger(set())
    twice = [*batch(["a"]), *batch(["a"], delivery=2)]
    arrival = arrive(ledger, twice)
    assert (arrival.fresh, ack_ids(arrival.outdated)) == (1, ["a/1"])
    assert ack_ids(ledger.cut(1, 9, 1000)) == ["a/2"]


def test_what_is_done_is_suppressed_and_counted() -> None:
    """The message is returned at once to be acknowledged."""
    ledger = LeaseLedger({"a"})
    arrival = arrive(ledger, batch(["a", "b"]))
    assert (arrival.fresh, ack_ids(arrival.done)) == (1, ["a/1"])
    assert (ledger.suppressed, ledger.buffered) == (1, 1)


def test_every_redelivery_is_counted() -> None:
    """Redeliveries of buffered, written, restored or committed messages make no row."""
    ledger = LeaseLedger({"done"})
    ledger.restore(1, ["restored"])
    arrive(ledger, batch(["cut"]))
    ledger.cut(2, 1, 1000)
    arrive(ledger, batch(["buffered"]))
    again = batch(["done", "restored", "cut", "buffered", "new"], delivery=2)
    arrival = arrive(ledger, again)
    assert (arrival.fresh, ledger.suppressed) == (1, 4)
    assert arrival.buffered == again[3:]


def test_a_segment_that_could_not_be_written_is_buffered_again() -> None:
    """Its messages go before newer ones, with their newest leases."""
    ledger = LeaseLedger(set())
    arrive(ledger, batch(["a", "b"]))
    ledger.cut(1, 9, 1000)
    arrive(ledger, batch(["c"]))
    arrive(ledger, batch(["b"], delivery=2))
    ledger.put_back(1)
    assert ledger.has(3, 30)
    assert not ledger.has(4, 31)
    assert ack_ids(ledger.cut(1, 9, 1000)) == ["a/1", "b/2", "c/1"]


def test_a_lost_lease_takes_only_what_is_buffered_with_it() -> None:
    """Messages in a segment stay and wait for their redelivery, and so do redelivered messages."""
    ledger = LeaseLedger(set())
    old = batch(["a", "b"])
    arrive(ledger, old)
    ledger.cut(1, 1, 1000)
    renewed = batch(["c"])
    arrive(ledger, renewed)
    arrive(ledger, batch(["c"], delivery=2))
    ledger.lost([*old, *renewed])
    assert (ledger.buffered, ledger.spooled) == (1, 1)
    assert ack_ids(ledger.cut(2, 9, 1000)) == ["c/2"]


def test_what_was_lost_and_is_redelivered_is_the_last() -> None:
    """The order after a loss is the order of redelivery.

    A redelivery of a message that is still buffered keeps its place.
    """
    ledger = LeaseLedger(set())
    for delivery in (1, 2, 3):
        lost = batch(["a", "b"], delivery=delivery)
        arrive(ledger, lost)
        ledger.lost(lost)
    arrive(ledger, batch(["c", "a"]))
    arrive(ledger, batch(["b", "c"], delivery=4))
    assert ledger.buffered == 3
    assert ack_ids(ledger.cut(1, 9, 1000)) == ["c/4", "a/1", "b/4"]


def test_what_was_lost_takes_no_memory() -> None:
    """This also holds while no segment is asked for and the same messages come again and again."""
    ledger = LeaseLedger(set())
    sizes = []
    tracemalloc.start()
    for delivery in range(20):
        lost = batch([str(number) for number in range(500)], delivery=delivery)
        arrive(ledger, lost)
        ledger.lost(lost)
        del lost
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert ledger.buffered == 0
    assert max(sizes[10:]) < 1.2 * max(sizes[:10])


def test_adopted_leases_do_not_replace_newer_ones() -> None:
    """A redelivery may have come first."""
    ledger = LeaseLedger(set())
    ledger.restore(1, ["a", "b"])
    arrive(ledger, batch(["a"], delivery=2))
    a, b = batch(["a", "b"])
    assert ledger.adopted(1, {"a": a, "b": b}) == [a]
    assert ack_ids(ledger.leased()) == ["a/2", "b/1"]
    assert ledger.spooled_up_to(1) == 2
    assert ack_ids(ledger.committed(1)) == ["a/2", "b/1"]
    assert ledger.spooled_up_to(1) == 0


class LedgerMachine(RuleBasedStateMachine):
    """Random deliveries, batches and commits, compared to a model with a place for each message."""

    segments = Bundle("segments")

    def __init__(self) -> None:
        super().__init__()
        # Makes the buffer compact itself now and then, although there are few messages.
        self.few = patch("pullstream.spark.session.lease_ledger._EMPTY_PLACES", 1)
        self.few.start()
        self.done: set[Key] = set()
        self.ledger = LeaseLedger(self.done)
        self.place: dict[str, int] = {}
        self.newest: dict[str, Message] = {}
        self.acked: set[str] = set()
        self.deliveries = 0
        self.seq = 0

    def teardown(self) -> None:
        self.few.stop()

    @rule(ids=st.lists(st.sampled_from(IDS), max_size=6))
    def deliver(self, ids: list[str]) -> None:
        self.deliveries += 1
        messages = batch(ids, delivery=self.deliveries)
        arrival = arrive(self.ledger, messages)
        assert ack_ids(arrival.done) == [m.ack_id for m in messages if m.message_id in self.acked]
        for message in messages:
            if message.message_id not in self.acked:
                self.place.setdefault(message.message_id, 0)
                self.newest[message.message_id] = message

    @rule(target=segments, limit=st.integers(1, 5))
    def cut(self, limit: int) -> int:
        waiting = [one for one, place in self.place.items() if place == 0]
        self.seq += 1
        cut = self.ledger.cut(self.seq, limit, 1_000_000)
        assert cut == [self.newest[one] for one in waiting[:limit]]
        for message in cut:
            self.place[message.message_id] = self.seq
        return self.seq

    @rule(seq=segments)
    def commit(self, seq: int) -> None:
        if seq not in self.ledger.segments:
            return
        keys = self.ledger.keys(seq)
        assert keys == [key_of(one) for one, place in self.place.items() if place == seq]
        self.done.update(keys)
        for message in self.ledger.committed(seq):
            assert message is self.newest.pop(message.message_id)
            del self.place[message.message_id]
            assert message.message_id not in self.acked
            self.acked.add(message.message_id)

    @rule(seq=segments)
    def fail_to_write(self, seq: int) -> None:
        # Only the newest segment, which is being written, can fail.
        if seq == self.seq and seq in self.ledger.segments:
            self.ledger.put_back(seq)
            back = [one for one, place in self.place.items() if place == seq]
            rest = {one: place for one, place in self.place.items() if place != seq}
            self.place = {**dict.fromkeys(back, 0), **rest}

    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        waiting = [one for one, place in self.place.items() if place == 0]
        if waiting:
            one = data.draw(st.sampled_from(waiting))
            self.ledger.lost([self.newest.pop(one)])
            del self.place[one]

    @invariant()
    def everything_is_in_one_place(self) -> None:
        buffered = [one for one, place in self.place.items() if place == 0]
        assert self.ledger.buffered == len(buffered)
        assert self.ledger.spooled == len(self.place) - len(buffered)
        assert self.ledger.has(len(buffered), 10 * len(buffered))
        assert not self.ledger.has(len(buffered) + 1, 10 * len(buffered) + 1)


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=50, stateful_step_count=30)
