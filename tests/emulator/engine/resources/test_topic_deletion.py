"""Deletion of a topic, and its effect on subscriptions and snapshots."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration

from pullstream_protocol.errors import FailedPrecondition
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import PROJECT, SNAPSHOT, SUBSCRIPTION, TOPIC, Broker, broker_holding


def test_subscriptions_of_a_deleted_topic_keep_their_backlog() -> None:
    """The subscriptions report that their topic is deleted.

    Their backlog is delivered and acknowledged.
    """
    broker = broker_holding("a")
    broker.engine.delete_topic(TOPIC)
    assert broker.engine.get_subscription(SUBSCRIPTION).topic == "_deleted-topic_"
    assert broker.acknowledge(*broker.join().take()) == []
    assert (broker.backlog, broker.engine.kept_bytes) == (0, 0)


def test_after_a_topic_deletion_the_shorter_retention_of_its_subscription_applies() -> None:
    """While the topic exists, its retention extends that of its subscriptions."""
    week = 7 * 24 * 3600
    broker = Broker(topic={"message_retention_duration": Duration(seconds=4 * week)})
    broker.publish("a")
    broker.advance(2 * week)
    assert broker.backlog == 1
    broker.engine.delete_topic(TOPIC)
    due = broker.engine.next_due()
    assert due is not None
    assert due <= 2 * week
    broker.advance(0)
    assert broker.backlog == 0


def test_a_new_topic_with_the_name_of_a_deleted_topic_has_no_subscriptions(broker: Broker) -> None:
    """The old subscription does not receive its messages, and is not listed with it."""
    broker.engine.delete_topic(TOPIC)
    broker.engine.create_topic(pubsub.Topic(name=TOPIC))
    assert broker.publish("new") == ["1"]
    assert broker.backlog == 0
    request = pubsub.ListTopicSubscriptionsRequest(topic=TOPIC)
    assert broker.engine.list_topic_subscriptions(request).subscriptions == []
    assert broker.engine.get_subscription(SUBSCRIPTION).topic == "_deleted-topic_"


def test_a_subscription_of_a_deleted_topic_can_be_updated_and_deleted(broker: Broker) -> None:
    """The other settings work as before."""
    broker.engine.delete_topic(TOPIC)
    assert broker.update(ack_deadline_seconds=30).ack_deadline_seconds == 30
    broker.engine.delete_subscription(SUBSCRIPTION)


def test_messages_retained_only_by_a_topic_are_removed_with_the_topic(broker: Broker) -> None:
    """Messages that only the topic kept are removed."""
    broker.update_topic(message_retention_duration={"seconds": 3600})
    broker.publish("a")
    broker.acknowledge(*broker.join().take())
    assert broker.engine.kept_bytes > 0
    broker.engine.delete_topic(TOPIC)
    assert broker.engine.kept_bytes == 0


def test_a_subscription_keeps_its_retained_messages_after_its_topic_is_deleted() -> None:
    """A seek restores it, with or without the topic."""
    broker = broker_holding("a", retain_acked_messages=True)
    broker.acknowledge(*broker.join().take())
    broker.engine.delete_topic(TOPIC)
    broker.seek(1)
    assert broker.join().take_data() == ["a"]


def test_snapshots_of_a_deleted_topic_stay_usable() -> None:
    """The snapshots can be used by the subscriptions that existed with them, and by no other."""
    broker = broker_holding("a")
    broker.take_snapshot()
    broker.acknowledge(*broker.join().take())
    broker.engine.delete_topic(TOPIC)
    assert broker.engine.get_snapshot(SNAPSHOT).topic == "_deleted-topic_"
    broker.seek_to_snapshot()
    assert broker.join().take_data() == ["a"]


def test_a_subscription_of_a_recreated_topic_cannot_seek_to_a_snapshot_of_the_old_topic(
    broker: Broker,
) -> None:
    """The messages of the snapshot belong to another topic."""
    broker.take_snapshot()
    broker.engine.delete_topic(TOPIC)
    broker.engine.create_topic(pubsub.Topic(name=TOPIC))
    other = f"{PROJECT}/subscriptions/other"
    broker.engine.create_subscription(pubsub.Subscription(name=other, topic=TOPIC))
    with pytest.raises(FailedPrecondition, match="they must match"):
        broker.engine.seek(pubsub.SeekRequest(subscription=other, snapshot=SNAPSHOT))
    request = pubsub.ListTopicSnapshotsRequest(topic=TOPIC)
    assert broker.engine.list_topic_snapshots(request).snapshots == []
