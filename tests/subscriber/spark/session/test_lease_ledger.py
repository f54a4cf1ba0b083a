"""The ledger tracks each message, and returns the messages to acknowledge after a commit."""

from __future__ import annotations

import tracemalloc

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from pullstream.message import Message
from pullstream.spark.session.lease_ledger import Arrival, LeaseLedger
from pullstream.spark.session.message_group import MessageGroup, rows_of
from pullstream.spark.spool.message_keys import Key, key_of
from tests.subscriber.spark.session.messages import batch, flat

IDS = [str(number) for number in range(12)]


def ack_ids(messages: list[Message]) -> list[str]:
    return [message.ack_id for message in messages]


def arrive(ledger: LeaseLedger, messages: list[Message]) -> Arrival:
    return ledger.arrived(MessageGroup.of_arrived(messages, None))


def cut(ledger: LeaseLedger, seq: int, messages: int, size: int) -> list[Message]:
    """Cut a segment, and check that each row is that of the newest delivery."""
    groups = ledger.cut(seq, messages, size)
    found = flat(groups)
    if groups:
        made_now = MessageGroup.of_arrived(found, None).rows
        assert rows_of(groups, None) == made_now
    return found


def test_the_lease_ledger_gives_messages_to_segments_in_the_order_of_arrival() -> None:
    """A cut takes messages up to the limits, and at least one."""
    ledger = LeaseLedger(set())
    arrive(ledger, batch(["a", "b", "c"], share=10))
    arrive(ledger, batch(["large"], share=100))
    assert ack_ids(cut(ledger, 1, 2, 1000)) == ["a/1", "b/1"]
    assert ack_ids(cut(ledger, 2, 10, 10)) == ["c/1"]
    assert ack_ids(cut(ledger, 3, 10, 10)) == ["large/1"]
    assert cut(ledger, 4, 10, 10) == []
    assert (ledger.buffered, ledger.spooled, ledger.segments) == (0, 4, [1, 2, 3])


def test_the_lease_ledger_has_a_full_batch_when_messages_or_bytes_reach_the_limit() -> None:
    """The limit that is reached first counts."""
    ledger = LeaseLedger(set())
    arrive(ledger, batch(["a", "b"], share=10))
    assert ledger.has(2, 1000)
    assert ledger.has(1000, 20)
    assert not ledger.has(3, 21)
    ledger.cut(1, 10, 1000)
    assert not ledger.has(1, 1)


def test_a_redelivery_replaces_the_earlier_delivery_of_its_message_in_the_lease_ledger() -> None:
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
    assert ack_ids(cut(ledger, 3, 9, 1000)) == ["a/2", "b/1"]


def test_the_lease_ledger_keeps_the_newer_of_two_deliveries_that_arrive_together() -> None:
    """The newer delivery stays."""
    ledger = LeaseLedger(set())
    twice = [*batch(["a"]), *batch(["a"], delivery=2)]
    arrival = arrive(ledger, twice)
    assert (arrival.fresh, ack_ids(arrival.outdated)) == (1, ["a/1"])
    assert ack_ids(cut(ledger, 1, 9, 1000)) == ["a/2"]


def test_the_lease_ledger_makes_no_row_for_redeliveries_of_committed_messages() -> None:
    """The message is returned at once to be acknowledged."""
    ledger = LeaseLedger({"a"})
    arrival = arrive(ledger, batch(["a", "b"]))
    assert (arrival.fresh, ack_ids(arrival.done)) == (1, ["a/1"])
    assert (ledger.suppressed, ledger.buffered) == (1, 1)


def test_the_lease_ledger_counts_redeliveries_of_buffered_written_and_committed_messages() -> None:
    """Redeliveries of buffered, written, restored or committed messages make no row."""
    ledger = LeaseLedger({"done"})
    ledger.restore(1, ["restored"])
    arrive(ledger, batch(["cut"]))
    ledger.cut(2, 1, 1000)
    arrive(ledger, batch(["buffered"]))
    again = batch(["done", "restored", "cut", "buffered", "new"], delivery=2)
    arrival = arrive(ledger, again)
    assert (arrival.fresh, ledger.suppressed) == (1, 4)
    assert cut(ledger, 3, 9, 1000) == again[3:]


def test_messages_of_a_failed_spool_write_are_buffered_again_with_their_newest_leases() -> None:
    """The messages go before newer ones, with their newest leases."""
    ledger = LeaseLedger(set())
    arrive(ledger, batch(["a", "b"]))
    ledger.cut(1, 9, 1000)
    arrive(ledger, batch(["c"]))
    arrive(ledger, batch(["b"], delivery=2))
    ledger.put_back(1)
    assert ledger.has(3, 30)
    assert not ledger.has(4, 31)
    assert ack_ids(cut(ledger, 1, 9, 1000)) == ["a/1", "b/2", "c/1"]


def test_a_lost_lease_removes_a_message_from_the_lease_ledger_only_before_its_spool_write() -> None:
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
    assert ack_ids(cut(ledger, 2, 9, 1000)) == ["c/2"]


def test_a_spark_message_that_lost_its_lease_is_ordered_by_the_time_of_its_redelivery() -> None:
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
    assert ack_ids(cut(ledger, 1, 9, 1000)) == ["c/4", "a/1", "b/4"]


def test_messages_that_lost_their_leases_use_no_memory_in_the_lease_ledger() -> None:
    """No segment is requested meanwhile, and the same messages come again and again."""
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


def test_the_lease_ledger_builds_the_rows_of_messages_when_they_arrive() -> None:
    """Segments take them by their own size, and not by response."""
    ledger = LeaseLedger(set())
    messages = batch([str(number) for number in range(10)])
    arrive(ledger, messages[:4])
    arrive(ledger, messages[4:])
    for message in messages:
        # A row that is made from now on has another id.
        message.received.message.message_id += "!"
    groups = [ledger.cut(seq, 3, 1000) for seq in (1, 2, 3, 4)]
    ids = [one for each in groups for one in rows_of(each, None).column("message_id").to_pylist()]
    assert ids == [str(number) for number in range(10)]


def test_the_lease_ledger_frees_the_rows_of_lost_and_committed_messages() -> None:
    """The other rows are not made again."""
    ledger = LeaseLedger({"0", 5})
    messages = batch([str(number) for number in range(6)], data=bytes(1000))
    arrive(ledger, messages)
    ledger.lost([messages[2], messages[4]])
    for message in messages:
        message.received.message.message_id += "!"
    (group,) = ledger.cut(1, 9, 10_000)
    assert group.rows is not None
    assert group.rows.column("message_id").to_pylist() == ["1", "3"]
    assert 2000 <= group.rows.get_total_buffer_size() < 3000


def test_leases_adopted_for_restored_messages_do_not_replace_newer_leases_in_the_ledger() -> None:
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
        self.done: set[Key] = set()
        self.ledger = LeaseLedger(self.done)
        self.place: dict[str, int] = {}
        self.newest: dict[str, Message] = {}
        self.acked: set[str] = set()
        self.deliveries = 0
        self.seq = 0

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
        messages = cut(self.ledger, self.seq, limit, 1_000_000)
        assert messages == [self.newest[one] for one in waiting[:limit]]
        for message in messages:
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
