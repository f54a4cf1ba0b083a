"""Seek: moves the backlog of a subscription to another time or to a snapshot."""

from __future__ import annotations

import pytest

from pullstream_protocol.errors import FailedPrecondition, InvalidArgument, NotFound
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import PROJECT, SNAPSHOT, SUBSCRIPTION, Broker, broker_holding


def seek_to(broker: Broker, seconds_ago: float) -> None:
    broker.seek(broker.clock.now() - seconds_ago)


def acknowledge_all(broker: Broker) -> None:
    consumer = broker.join()
    while got := consumer.take():
        broker.acknowledge(*got)
    consumer.leave()


# ---- to a time -----------------------------------------------------------------------------------


def test_a_seek_to_a_time_acknowledges_messages_published_before_that_time() -> None:
    """Messages published at that time or later stay."""
    broker = broker_holding("1")
    broker.advance(10)
    broker.publish("2")
    broker.advance(10)
    broker.publish("3")
    seek_to(broker, 10)
    assert broker.backlog == 2
    assert broker.join().take_data() == ["2", "3"]


def test_a_seek_to_a_future_time_purges_the_backlog_of_the_subscription() -> None:
    """Messages that are published later are delivered."""
    broker = broker_holding("1", "2")
    seek_to(broker, -3600)
    assert (broker.backlog, broker.engine.kept_bytes) == (0, 0)
    broker.publish("3")
    assert broker.join().take_data() == ["3"]


def test_a_seek_to_an_earlier_time_restores_retained_acknowledged_messages() -> None:
    """The messages come in the order of publishing, before the waiting messages."""
    broker = broker_holding("1", retain_acked_messages=True)
    broker.advance(10)
    broker.publish("2", "3")
    acknowledge_all(broker)
    broker.publish("4")
    seek_to(broker, 0)
    assert broker.backlog == 3
    assert broker.join().take_data() == ["2", "3", "4"]


def test_a_seek_to_just_after_a_publish_time_acknowledges_that_message() -> None:
    """One nanosecond makes the difference."""
    broker = broker_holding("1")
    request = pubsub.SeekRequest(subscription=SUBSCRIPTION)
    request.time.FromNanoseconds(int(broker.clock.now()) * 10**9)
    broker.engine.seek(request)
    assert broker.backlog == 1
    request.time.nanos = 1
    broker.engine.seek(request)
    assert broker.backlog == 0


def test_a_message_restored_by_a_seek_starts_with_zero_delivery_attempts() -> None:
    """The old ack ID of the message is stale."""
    broker = broker_holding("1", retain_acked_messages=True)
    consumer = broker.join()
    broker.nack(*consumer.take())
    (old,) = consumer.take()
    broker.acknowledge(old)
    seek_to(broker, 0)
    assert broker.acknowledge(old) == [old.ack_id]
    (new,) = consumer.take()
    assert new.failed_before == 0


def test_a_seek_ends_every_lease_of_the_subscription() -> None:
    """An acknowledgement that is sent before the seek does not count: the message comes again."""
    broker = broker_holding("old")
    broker.advance(5)
    broker.publish("new", "next")
    consumer = broker.join(deadline=60, max_messages=2)
    old, new = consumer.take()
    assert consumer.take() == []
    seek_to(broker, 0)
    assert broker.acknowledge(old, new) == [old.ack_id, new.ack_id]
    assert [(got.data, got.failed_before) for got in consumer.take()] == [("new", 0), ("next", 0)]


def test_an_acknowledgement_of_a_delivery_from_before_a_seek_does_not_remove_the_message() -> None:
    """The rule holds even if the message still waits for redelivery."""
    broker = broker_holding("a")
    (late,) = broker.join(deadline=10).take()
    broker.advance(10)
    seek_to(broker, 10)
    assert broker.acknowledge(late) == [late.ack_id]
    assert broker.backlog == 1


def test_a_seek_to_an_earlier_time_wakes_a_waiting_consumer() -> None:
    """There are messages for it again."""
    broker = broker_holding("1", retain_acked_messages=True)
    consumer = broker.join()
    broker.acknowledge(*consumer.take())
    assert consumer.take() == []
    seek_to(broker, 0)
    assert consumer.wakes == 1


def test_a_seek_to_an_earlier_time_restarts_an_ordering_key_at_the_restored_messages() -> None:
    """Messages come in order. The lease of a later message ends."""
    broker = Broker(retain_acked_messages=True, enable_message_ordering=True)
    broker.publish("1", "2", "3", key="k")
    broker.publish("x", key="x")
    consumer = broker.join(deadline=600)
    got = {each.data: each for each in consumer.take()}
    broker.acknowledge(got["1"], got["2"])
    seek_to(broker, 0)
    assert broker.acknowledge(got["3"]) == [got["3"].ack_id]
    broker.publish("4", key="k")
    again = [each for each in consumer.take_data() if each != "x"]
    assert again == ["1", "2", "3", "4"]


def test_a_seek_to_a_later_time_drops_older_messages_of_an_ordering_key() -> None:
    """The later messages continue in order."""
    broker = broker_holding("1", key="k", enable_message_ordering=True)
    broker.advance(10)
    broker.publish("2", "3", key="k")
    consumer = broker.join(deadline=600)
    consumer.take(1)
    seek_to(broker, 0)
    assert consumer.take_data() == ["2", "3"]
    assert broker.backlog == 2


def test_a_seek_ends_the_retry_backoff_of_every_message() -> None:
    """Unfinished messages are ready at once.

    The others do not return at the end of their backoff.
    """
    policy = pubsub.RetryPolicy()
    policy.minimum_backoff.seconds = 10
    broker = broker_holding("1", retry_policy=policy)
    consumer = broker.join()
    broker.nack(*consumer.take())
    seek_to(broker, 0)
    broker.nack(*consumer.take())
    seek_to(broker, -1)
    broker.advance(600)
    assert (consumer.take(), broker.backlog) == ([], 0)


# ---- to a snapshot -------------------------------------------------------------------------------


def test_a_seek_to_a_snapshot_restores_the_backlog_of_the_snapshot() -> None:
    """The backlog contains the messages that were unacknowledged then, and all later ones."""
    broker = broker_holding("acked")
    acknowledge_all(broker)
    broker.publish("1", "2")
    broker.take_snapshot()
    broker.publish("3")
    acknowledge_all(broker)
    broker.seek_to_snapshot()
    assert broker.join().take_data() == ["1", "2", "3"]


def test_a_seek_to_a_snapshot_acknowledges_messages_that_are_not_in_the_snapshot() -> None:
    """The backlog was larger than the snapshot."""
    broker = broker_holding("1", "2", retain_acked_messages=True)
    acknowledge_all(broker)
    broker.take_snapshot()
    broker.publish("3")
    seek_to(broker, 3600)
    assert broker.backlog == 3
    broker.seek_to_snapshot()
    assert broker.join().take_data() == ["3"]


def test_a_snapshot_contains_leased_messages() -> None:
    """Leased messages are not acknowledged."""
    broker = broker_holding("1")
    consumer = broker.join(deadline=600)
    got = consumer.take()
    broker.take_snapshot()
    broker.acknowledge(*got)
    broker.seek_to_snapshot()
    assert consumer.take_data() == ["1"]


def test_a_snapshot_can_be_the_target_of_several_seeks() -> None:
    """A seek does not change the snapshot."""
    broker = broker_holding("1")
    broker.take_snapshot()
    for _ in range(3):
        acknowledge_all(broker)
        assert broker.backlog == 0
        broker.seek_to_snapshot()
        assert broker.backlog == 1


# ---- refusals ------------------------------------------------------------------------------------


def test_a_seek_without_a_target_is_refused() -> None:
    """Without a target nothing changes."""
    broker = broker_holding("1")
    with pytest.raises(InvalidArgument, match="No target was specified in the SeekRequest"):
        broker.engine.seek(pubsub.SeekRequest(subscription=SUBSCRIPTION))
    assert broker.backlog == 1


@pytest.mark.parametrize(("seconds", "nanos"), [(2**62, 0), (-(2**62), 0), (0, -1), (0, 10**9)])
def test_a_seek_to_an_invalid_time_is_refused(seconds: int, nanos: int) -> None:
    """The time must be within the years of a Timestamp."""
    broker = broker_holding("1")
    request = pubsub.SeekRequest(subscription=SUBSCRIPTION)
    request.time.seconds = seconds
    request.time.nanos = nanos
    with pytest.raises(InvalidArgument, match=r"\(argument=time\)"):
        broker.engine.seek(request)
    assert broker.backlog == 1


def test_the_error_of_a_seek_names_the_missing_subscription_or_snapshot(broker: Broker) -> None:
    """The subscription is checked first."""
    for subscription, snapshot, short in (
        (f"{SUBSCRIPTION}2", SNAPSHOT, "billing2"),
        (SUBSCRIPTION, SNAPSHOT, "before"),
    ):
        request = pubsub.SeekRequest(subscription=subscription, snapshot=snapshot)
        with pytest.raises(NotFound, match=rf"\(resource={short}\)"):
            broker.engine.seek(request)


def test_seeking_a_subscription_to_a_snapshot_of_another_topic_is_refused(broker: Broker) -> None:
    """The messages of the snapshot never belonged to this subscription."""
    broker.take_snapshot()
    topic, other = f"{PROJECT}/topics/other", f"{PROJECT}/subscriptions/other"
    broker.engine.create_topic(pubsub.Topic(name=topic))
    broker.engine.create_subscription(pubsub.Subscription(name=other, topic=topic))
    with pytest.raises(FailedPrecondition, match="is different from that of the snapshot"):
        broker.engine.seek(pubsub.SeekRequest(subscription=other, snapshot=SNAPSHOT))
