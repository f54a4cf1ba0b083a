"""Retention of unacknowledged and of acknowledged messages."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION, TOPIC, Broker, broker_holding

MINUTE = 60


def minutes(count: float) -> Duration:
    return Duration(seconds=int(count * MINUTE))


# ---- unacknowledged messages ---------------------------------------------------------------------


def test_unacknowledged_messages_are_dropped_after_their_retention() -> None:
    """The message is dropped exactly on time. Younger messages stay."""
    broker = broker_holding("old", message_retention_duration=minutes(10))
    broker.advance(5 * MINUTE)
    broker.publish("young")
    broker.advance(5 * MINUTE - 1)
    assert broker.backlog == 2
    broker.advance(1)
    assert broker.backlog == 1
    assert broker.join().take_data() == ["young"]


def test_a_leased_message_past_its_retention_may_still_be_acknowledged() -> None:
    """The consumer is handling the message. The message is not delivered again."""
    broker = broker_holding("a", "b", message_retention_duration=minutes(10))
    consumer = broker.join(deadline=600)
    a, b = consumer.take()
    broker.advance(9 * MINUTE)
    broker.modify(600, a, b)
    broker.advance(5 * MINUTE)
    assert broker.backlog == 2
    assert broker.acknowledge(a) == []
    broker.nack(b)
    assert (consumer.take(), broker.backlog) == ([], 0)


def test_a_message_in_retry_backoff_is_dropped_after_its_retention() -> None:
    """The same holds for a message that has returned to the queue."""
    policy = pubsub.RetryPolicy(
        minimum_backoff=Duration(seconds=600), maximum_backoff=Duration(seconds=600)
    )
    broker = broker_holding("a", message_retention_duration=minutes(10), retry_policy=policy)
    consumer = broker.join()
    broker.advance(1)
    broker.nack(*consumer.take())
    broker.advance(10 * MINUTE - 1)
    assert broker.backlog == 0
    broker.advance(10 * MINUTE)
    assert consumer.take() == []


def test_unacknowledged_messages_of_an_ordering_key_are_dropped_after_their_retention() -> None:
    """The messages may be in a queue, leased, or waiting behind a lease."""
    broker = Broker(message_retention_duration=minutes(10), enable_message_ordering=True)
    broker.publish("1", "2", key="k")
    broker.publish("x", key="x")
    broker.publish("single")
    broker.advance(5 * MINUTE)
    broker.publish("3", key="k")
    consumer = broker.join(deadline=600, max_messages=1)
    (one,) = consumer.take()
    broker.advance(5 * MINUTE)
    assert broker.backlog == 2
    broker.acknowledge(one)
    assert consumer.take_data() == ["3"]


def test_a_failed_ordering_key_is_redelivered_from_its_oldest_message_within_retention() -> None:
    """Messages that became too old during the lease are dropped."""
    broker = Broker(message_retention_duration=minutes(10), enable_message_ordering=True)
    broker.publish("old", key="k")
    broker.advance(5 * MINUTE)
    broker.publish("young", key="k")
    consumer = broker.join(deadline=600)
    old, young = consumer.take()
    broker.nack(old)
    broker.advance(5 * MINUTE)
    broker.nack(young)
    broker.advance(1)
    assert consumer.take_data() == ["young"]
    assert broker.backlog == 1


def test_a_shortened_message_retention_drops_older_messages_at_once() -> None:
    """The engine drops them at its next turn."""
    broker = broker_holding("a")
    broker.advance(20 * MINUTE)
    broker.update(message_retention_duration=minutes(10))
    broker.advance(0)
    assert broker.backlog == 0


def test_messages_are_kept_for_the_longer_retention_of_topic_and_subscription() -> None:
    """Subscriptions can always use the messages that the topic retains."""
    broker = Broker(
        topic={"message_retention_duration": minutes(30)},
        message_retention_duration=minutes(10),
    )
    broker.publish("a")
    broker.advance(29 * MINUTE)
    assert broker.backlog == 1
    broker.advance(1 * MINUTE)
    assert broker.backlog == 0


def test_messages_dropped_by_retention_free_their_memory() -> None:
    """An acknowledgement does the same."""
    broker = broker_holding("a" * 1000, message_retention_duration=minutes(10))
    assert broker.engine.kept_bytes > 1000
    broker.advance(10 * MINUTE)
    assert broker.engine.kept_bytes == 0


# ---- acknowledged messages -----------------------------------------------------------------------


def test_a_subscription_that_retains_acked_messages_can_seek_back_to_them() -> None:
    """A seek makes them unacknowledged again, in order, within the retention."""
    broker = broker_holding("1", retain_acked_messages=True, message_retention_duration=minutes(10))
    broker.advance(5 * MINUTE)
    broker.publish("2", "3")
    consumer = broker.join()
    broker.acknowledge(*consumer.take())
    broker.seek(1)
    assert consumer.take_data() == ["1", "2", "3"]
    broker.advance(5 * MINUTE)
    broker.seek(1)
    assert consumer.take_data() == ["2", "3"]


def test_acknowledged_messages_are_not_retained_by_default() -> None:
    """A seek does not restore them."""
    broker = broker_holding("1")
    broker.acknowledge(*broker.join().take())
    assert broker.engine.kept_bytes == 0
    broker.seek(1)
    assert broker.backlog == 0


def test_the_setting_retain_acked_messages_can_be_changed_by_a_subscription_update() -> None:
    """The setting applies to messages that are unacknowledged then.

    It can be switched off again.
    """
    broker = broker_holding("early", "late")
    early, late = broker.join().take()
    broker.acknowledge(early)
    broker.update(retain_acked_messages=True)
    broker.acknowledge(late)
    broker.seek(1)
    consumer = broker.join()
    got = consumer.take()
    assert [each.data for each in got] == ["late"]
    broker.acknowledge(*got)
    broker.update(retain_acked_messages=False)
    assert broker.engine.kept_bytes == 0


def test_an_update_that_does_not_turn_retention_on_does_not_scan_retained_messages() -> None:
    """Other changes of the settings do not go through the retained messages."""
    broker = Broker(retain_acked_messages=True, message_retention_duration=minutes(20))
    broker.publish("1", "2")
    history = broker.engine.registry.topic(TOPIC).log.history
    broker.update(labels={"team": "red"})
    broker.update_topic(message_retention_duration=minutes(30))
    assert broker.engine.registry.topic(TOPIC).log.history is history
    assert [record.seq for record in history] == [1, 2]


def test_a_later_subscription_can_seek_to_messages_retained_by_its_topic() -> None:
    """A subscription that is created later can seek to messages from before its creation."""
    broker = Broker(topic={"message_retention_duration": minutes(30)})
    broker.engine.delete_subscription(SUBSCRIPTION)
    broker.publish("before")
    broker.engine.create_subscription(pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC))
    assert broker.backlog == 0
    broker.seek(1)
    got = broker.join().take()
    assert [each.data for each in got] == ["before"]
    broker.acknowledge(*got)
    broker.advance(30 * MINUTE)
    broker.seek(1)
    assert (broker.backlog, broker.engine.kept_bytes) == (0, 0)


def test_retained_messages_are_dropped_at_their_due_time_even_between_two_milliseconds() -> None:
    """Otherwise an advance of the clock, which does all due work, would not end."""
    retention = Duration(seconds=600, nanos=123_456_789)
    for hundredths in range(40):
        broker = Broker(topic={"message_retention_duration": retention})
        broker.advance(hundredths / 100)
        broker.publish("1")
        broker.acknowledge(*broker.join().take())
        for _ in range(3):
            # The first due times are those of the lease.
            due = broker.engine.next_due()
            assert due is not None
            broker.advance(max(due - broker.clock.monotonic(), 0))
        assert broker.engine.kept_bytes == 0


def test_a_seek_does_not_restore_messages_retained_by_another_subscription(broker: Broker) -> None:
    """Without retention on the subscription or the topic a seek restores nothing."""
    broker.engine.create_subscription(
        pubsub.Subscription(
            name="projects/test/subscriptions/keeper", topic=TOPIC, retain_acked_messages=True
        )
    )
    broker.publish("a")
    broker.acknowledge(*broker.join().take())
    broker.seek(1)
    assert broker.backlog == 0


def test_a_subscription_shows_the_message_retention_of_its_topic() -> None:
    """The field is set at creation and after a change, but not after the topic is deleted."""
    broker = Broker(topic={"message_retention_duration": minutes(30)})

    def told() -> int:
        config = broker.engine.get_subscription(SUBSCRIPTION)
        return config.topic_message_retention_duration.seconds

    assert told() == 30 * MINUTE
    broker.update_topic(message_retention_duration=minutes(60))
    assert told() == 60 * MINUTE
    broker.engine.delete_topic(TOPIC)
    assert told() == 0
