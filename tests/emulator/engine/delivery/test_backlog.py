"""Ordering keys: the messages of a key keep their order after failures of any kind."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from pullstream_emulator.engine.delivery.backlog import RESERVED_FOR
from pullstream_emulator.engine.delivery.delivery_state import KeyQueue
from tests.emulator.broker import SUBSCRIPTION, Broker, ConsumerDriver, Got, broker_holding


def ordered(*data: str) -> Broker:
    """Return a broker with messages of one key."""
    broker = Broker(enable_message_ordering=True)
    if data:
        broker.publish(*data, key="k")
    return broker


def test_one_consumer_receives_all_messages_of_an_ordering_key_in_order() -> None:
    """A consumer need not acknowledge one message to receive the next."""
    broker = ordered("1", "2")
    broker.publish("3", key="k")
    assert broker.join().take_data() == ["1", "2", "3"]


def test_messages_of_an_ordering_key_do_not_wait_for_messages_of_other_keys() -> None:
    """Each key goes to a consumer with room. A failed key does not delay the others."""
    broker = ordered("k1", "k2")
    broker.publish("x1", "x2", key="x")
    first, second = broker.join(), broker.join()
    (k1,) = first.take(1)
    assert k1.data == "k1"
    (x1,) = second.take(1)
    assert x1.data == "x1"
    broker.nack(k1)
    assert second.take_data(1) == ["x2"]


def test_messages_without_an_ordering_key_are_delivered_to_any_consumer_with_room() -> None:
    """The rule also holds in a subscription with ordering."""
    broker = ordered()
    broker.publish("a", "b")
    first, second = broker.join(), broker.join()
    assert (first.take_data(1), second.take_data(1)) == (["a"], ["b"])


def test_without_message_ordering_enabled_the_ordering_keys_of_messages_have_no_effect() -> None:
    """Any consumer receives any message, and only failed messages are redelivered."""
    broker = broker_holding("1", "2", key="k")
    first, second = broker.join(), broker.join()
    (one,) = first.take(1)
    assert second.take_data(1) == ["2"]
    broker.nack(one)
    assert second.take_data() == ["1"]


def test_an_ordering_key_goes_only_to_the_consumer_that_has_leases_of_its_messages() -> None:
    """Other consumers receive nothing of the key until all of those leases is acknowledged."""
    broker = ordered("1", "2", "3")
    holder, other = broker.join(), broker.join()
    one, two = holder.take(2)
    assert other.take() == []
    broker.acknowledge(one)
    assert other.take() == []
    broker.acknowledge(two)
    assert other.wakes == 1
    assert other.take_data() == ["3"]


def test_new_messages_of_an_ordering_key_wake_only_the_consumer_that_holds_the_key() -> None:
    """Only the holder may take the messages."""
    broker = ordered("1")
    other, holder = broker.join(), broker.join()
    holder.take()
    assert holder.take() == other.take() == []
    broker.publish("2", key="k")
    assert (holder.wakes, other.wakes) == (1, 0)
    assert holder.take_data() == ["2"]


def test_ordering_keys_are_spread_over_waiting_consumers() -> None:
    """While two consumers wait, each gets a part of the new keys, whichever comes first."""
    broker = ordered()
    consumers = [broker.join(), broker.join()]
    assert [consumer.take() for consumer in consumers] == [[], []]
    for key in "abcdefgh":
        broker.publish(f"{key}1", f"{key}2", key=key)
    keys = [{got.key for got in consumer.take()} for consumer in consumers]
    assert [len(k) for k in keys] == [4, 4]
    assert keys[0] | keys[1] == set("abcdefgh")


def test_out_of_order_acks_of_an_ordering_key_leave_the_backlog_in_publish_order() -> None:
    """A message is unfinished until all earlier ones of its key are acknowledged."""
    broker = ordered("1", "2", "3")
    one, two, three = broker.join().take()
    broker.acknowledge(three)
    broker.acknowledge(two)
    assert broker.backlog == 3
    broker.acknowledge(one)
    assert broker.backlog == 0


Failure = Callable[[Broker, ConsumerDriver, Got], None]


def nack(broker: Broker, _consumer: ConsumerDriver, got: Got) -> None:
    broker.nack(got)


def expire(broker: Broker, _consumer: ConsumerDriver, got: Got) -> None:
    broker.modify(1, got)
    broker.advance(1)


@pytest.mark.parametrize("fail", [nack, expire])
def test_a_failed_message_and_all_later_ones_of_its_ordering_key_are_redelivered(
    fail: Failure,
) -> None:
    """Every later message is redelivered, even if it was acknowledged since.

    Earlier messages are not.
    """
    broker = ordered("1", "2", "3", "4")
    consumer = broker.join(deadline=600)
    one, two, three = consumer.take(3)
    broker.acknowledge(three)
    fail(broker, consumer, two)
    broker.acknowledge(one)
    again = consumer.take()
    assert [g.data for g in again] == ["2", "3", "4"]
    assert [g.failed_before for g in again] == [1, 0, 0]


def test_an_acked_message_that_is_redelivered_with_its_ordering_key_must_be_acked_again() -> None:
    """An acknowledgement of the earlier delivery does not count for the new one."""
    broker = ordered("1", "2")
    consumer = broker.join()
    one, two = consumer.take()
    broker.acknowledge(two)
    broker.nack(one)
    one, two = consumer.take()
    broker.acknowledge(one)
    assert broker.backlog == 1
    broker.nack(two)
    assert consumer.take_data() == ["2"]


@pytest.mark.parametrize("fail", [nack, expire])
def test_a_failed_message_ends_the_leases_of_later_messages_of_its_ordering_key(
    fail: Failure,
) -> None:
    """The later messages are redelivered without an attempt, and their old ack IDs are stale."""
    broker = ordered("1", "2", "3")
    consumer = broker.join(deadline=600)
    one, two, three = consumer.take()
    fail(broker, consumer, one)
    assert consumer.consumer.outstanding_messages == 0
    assert broker.nack(two) == [two.ack_id]
    assert broker.acknowledge(three) == [three.ack_id]
    broker.publish("4", key="k")
    again = consumer.take()
    assert [(g.data, g.failed_before) for g in again] == [("1", 1), ("2", 0), ("3", 0), ("4", 0)]


def test_leases_of_a_key_expiring_together_count_as_a_failure_of_the_first_message_only() -> None:
    """A consumer that dies with 100 messages of a key was handling one of them."""
    broker = ordered("1", "2", "3")
    consumer = broker.join(deadline=10)
    consumer.take()
    broker.advance(10)
    assert [g.failed_before for g in consumer.take()] == [1, 0, 0]


def test_nacks_of_messages_of_a_key_add_a_delivery_attempt_only_to_the_first_message() -> None:
    """The result is the same as for separate nacks in order."""
    broker = ordered("1", "2", "3")
    consumer = broker.join()
    one, two, three = consumer.take()
    broker.nack(three, one, two)
    assert [g.failed_before for g in consumer.take()] == [1, 0, 0]


def test_an_earlier_message_of_an_ordering_key_keeps_its_lease_when_a_later_message_fails() -> None:
    """The failed message and later ones are redelivered while the earlier one is still leased."""
    broker = ordered("1", "2", "3")
    holder, other = broker.join(deadline=600), broker.join(deadline=600)
    one, two, _ = holder.take()
    broker.nack(two)
    assert other.take() == []
    assert [g.data for g in holder.take()] == ["2", "3"]
    assert broker.acknowledge(one) == []
    assert broker.backlog == 2


def test_nacks_marked_as_unseen_add_no_delivery_attempt_to_messages_of_an_ordering_key() -> None:
    """A client that shuts down has not tried the messages."""
    broker = ordered("1", "2")
    consumer = broker.join(deadline=600)
    ids = [got.ack_id for got in consumer.take()]
    assert broker.engine.modify_ack_deadline(SUBSCRIPTION, ids, 0, unseen=True) == {}
    assert [(g.data, g.failed_before) for g in consumer.take()] == [("1", 0), ("2", 0)]


def test_an_ordering_key_is_reserved_for_its_previous_consumer_for_a_while_after_a_nack() -> None:
    """The holder may have later messages in its queue, and must see the failed one again first."""
    broker = ordered("1", "2")
    holder, other = broker.join(), broker.join()
    broker.nack(*holder.take())
    assert other.take() == []
    assert holder.wakes == 0
    assert holder.take_data(1) == ["1"]


def test_a_consumer_that_does_not_take_its_reserved_ordering_key_in_time_loses_the_key() -> None:
    """A waiting consumer gets the key."""
    broker = ordered("1", "2")
    holder, other = broker.join(), broker.join()
    broker.nack(*holder.take())
    assert other.take() == []
    assert broker.engine.next_due() == RESERVED_FOR
    broker.advance(RESERVED_FOR)
    assert other.wakes == 1
    assert other.take_data() == ["1", "2"]


def test_a_consumer_that_leaves_loses_its_reserved_ordering_key() -> None:
    """The key is free at once."""
    broker = ordered("1", "2")
    holder, other = broker.join(), broker.join()
    broker.nack(*holder.take())
    assert other.take() == []
    holder.leave(give_back=False)
    assert other.wakes == 1
    assert other.take_data() == ["1", "2"]


def test_an_ordering_key_with_an_expired_lease_may_go_to_any_consumer() -> None:
    """The holder may have died without notice."""
    broker = ordered("1", "2")
    holder, other = broker.join(deadline=10), broker.join(deadline=10)
    assert len(holder.take()) == 2
    assert other.take() == []
    broker.advance(10)
    assert other.take_data(1) == ["1"]
    assert holder.take() == []
    assert other.take_data() == ["2"]


def test_failures_of_an_ordering_key_restart_its_delivery_at_the_earliest_failed_message() -> None:
    """The order in which the leases end does not matter."""
    broker = ordered("1", "2", "3", "4")
    consumer = broker.join()
    one, two, three, four = consumer.take()
    broker.nack(four)
    broker.nack(two)
    broker.acknowledge(three)
    broker.acknowledge(one)
    assert consumer.take_data() == ["2", "3", "4"]


def test_messages_of_an_ordering_key_stay_in_order_through_repeated_failures() -> None:
    """Each repetition delivers the same messages in the same order."""
    broker = ordered("1", "2", "3")
    consumer = broker.join()
    for attempt in range(4):
        got = consumer.take()
        assert [g.data for g in got] == ["1", "2", "3"]
        broker.nack(*got[attempt % 2 :])
        broker.nack(*got[: attempt % 2 or 1])
    broker.acknowledge(*consumer.take())
    assert broker.backlog == 0


def test_a_leaving_consumer_frees_its_ordering_keys_for_other_consumers() -> None:
    """Messages that the consumer acknowledged after an unfinished one also return.

    No attempt is counted.
    """
    broker = ordered("1", "2", "3", "4")
    leaving, other = broker.join(), broker.join()
    _, two, _ = leaving.take(3)
    broker.acknowledge(two)
    assert other.take() == []
    leaving.leave()
    assert other.wakes == 1
    again = other.take()
    assert [g.data for g in again] == ["1", "2", "3", "4"]
    assert {g.failed_before for g in again} == {0}


def test_ordering_keys_with_messages_leased_by_a_pull_are_blocked_for_other_pulls() -> None:
    """Other pulls get nothing of a key until the leases of the first one have ended."""
    broker = ordered("1", "2", "3")
    pull = broker.join(deadline=10)
    one, two = pull.take(2)
    pull.leave(give_back=False)
    assert broker.join().take() == []
    broker.acknowledge(one)
    assert broker.join().take() == []
    broker.acknowledge(two)
    assert broker.join().take_data() == ["3"]


def test_ordering_keys_leased_by_an_unacknowledged_pull_are_free_after_the_ack_deadline() -> None:
    """The key continues from the first unacknowledged message."""
    broker = ordered("1", "2", "3")
    pull = broker.join(deadline=10)
    (one, _) = pull.take(2)
    pull.leave(give_back=False)
    broker.acknowledge(one)
    broker.advance(10)
    assert broker.join().take_data() == ["2", "3"]


def test_an_acknowledgement_of_an_ordered_message_after_its_lease_expired_is_refused() -> None:
    """The key starts again from that message, with or without the acknowledgement."""
    broker = ordered("1", "2")
    consumer = broker.join(deadline=10)
    one, two = consumer.take()
    broker.advance(10)
    assert broker.acknowledge(one, two) == [one.ack_id, two.ack_id]
    assert consumer.take_data() == ["1", "2"]


def test_a_consumer_with_room_for_one_message_receives_messages_of_a_key_one_at_a_time() -> None:
    """Each acknowledgement releases the next message to the waiting consumer."""
    broker = ordered("1", "2", "3")
    consumer = broker.join(max_messages=1)
    for expected in ("1", "2", "3"):
        (got,) = consumer.take()
        assert got.data == expected
        assert consumer.take() == []
        broker.acknowledge(got)
    assert consumer.wakes == 2


def test_an_ordering_key_with_a_long_backlog_does_not_delay_messages_of_other_keys() -> None:
    """The holder receives other keys in between."""
    broker = ordered(*(f"k{i}" for i in range(100)))
    broker.publish("x", key="x")
    broker.publish("free")
    assert {"x", "free"} <= set(broker.join().take_data(10))


def test_an_ordering_key_whose_messages_are_all_acknowledged_takes_no_memory() -> None:
    """There may be as many keys as users.

    A key takes memory from the first delivery of its messages until all are acknowledged.
    """
    gc.collect()
    before = key_queues()
    broker = ordered()
    consumer = broker.join()
    for key in range(100):
        broker.publish("1", "2", key=f"user-{key}")
    taken = consumer.take()
    assert key_queues() == before + 100
    broker.acknowledge(*taken)
    assert key_queues() == before


def key_queues() -> int:
    return sum(isinstance(thing, KeyQueue) for thing in gc.get_objects())
