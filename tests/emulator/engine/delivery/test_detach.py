"""DetachSubscription, which separates a subscription from its topic permanently."""

from __future__ import annotations

import grpc
import pytest

from pullstream_protocol.errors import FailedPrecondition, NotFound
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import PROJECT, SUBSCRIPTION, TOPIC, Broker, broker_holding
from tests.emulator.wire import Wire


def test_detaching_a_subscription_drops_its_backlog_and_ends_deliveries() -> None:
    """The backlog covers waiting and leased messages."""
    broker = broker_holding("leased", "waiting")
    (got,) = broker.join().take(1)
    broker.engine.detach_subscription(SUBSCRIPTION)
    broker.publish("later")
    assert (broker.backlog, broker.engine.kept_bytes) == (0, 0)
    assert broker.acknowledge(got) == [got.ack_id]


def test_get_subscription_returns_a_detached_subscription_with_its_detached_field_set(
    broker: Broker,
) -> None:
    """The subscription keeps the name of its topic, but the topic does not list it."""
    broker.engine.detach_subscription(SUBSCRIPTION)
    config = broker.engine.get_subscription(SUBSCRIPTION)
    assert (config.detached, config.topic) == (True, TOPIC)
    request = pubsub.ListTopicSubscriptionsRequest(topic=TOPIC)
    assert broker.engine.list_topic_subscriptions(request).subscriptions == []


def test_detaching_a_detached_subscription_again_succeeds(broker: Broker) -> None:
    """The state is already the one that the caller wants."""
    broker.engine.detach_subscription(SUBSCRIPTION)
    broker.engine.detach_subscription(SUBSCRIPTION)
    assert broker.engine.get_subscription(SUBSCRIPTION).detached


def test_detaching_a_missing_subscription_ends_with_not_found() -> None:
    """The error is the same as for other calls."""
    with pytest.raises(NotFound, match=r"Resource not found \(resource=missing\)\."):
        Broker().engine.detach_subscription(f"{PROJECT}/subscriptions/missing")


def test_a_detached_subscription_refuses_consumers_seeks_and_snapshots(broker: Broker) -> None:
    """The refusal covers consumers, seeks and snapshots."""
    broker.engine.detach_subscription(SUBSCRIPTION)
    seek = pubsub.SeekRequest(subscription=SUBSCRIPTION)
    seek.time.FromSeconds(1)
    snapshot = pubsub.CreateSnapshotRequest(
        name=f"{PROJECT}/snapshots/before", subscription=SUBSCRIPTION
    )
    for call in (
        broker.join,
        lambda: broker.engine.seek(seek),
        lambda: broker.engine.create_snapshot(snapshot),
    ):
        with pytest.raises(FailedPrecondition, match="detached"):
            call()


def test_the_topic_of_a_detached_subscription_may_be_deleted(broker: Broker) -> None:
    """The subscription no longer depends on the topic."""
    broker.engine.detach_subscription(SUBSCRIPTION)
    broker.engine.delete_topic(TOPIC)
    broker.engine.delete_subscription(SUBSCRIPTION)


def test_detaching_a_subscription_ends_its_open_streams_and_pulls(wire: Wire) -> None:
    """Streams and pulls end with FAILED_PRECONDITION. New ones get the same error."""
    wire.create()
    stream = wire.stream()
    assert stream.is_quiet()
    request = pubsub.DetachSubscriptionRequest(subscription=SUBSCRIPTION)
    assert wire.call("DetachSubscription", request) == pubsub.DetachSubscriptionResponse()
    assert stream.end() is grpc.StatusCode.FAILED_PRECONDITION
    pull = pubsub.PullRequest(subscription=SUBSCRIPTION, max_messages=1)
    refused = wire.start("Pull", pull).exception()
    assert refused.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert wire.stream().end() is grpc.StatusCode.FAILED_PRECONDITION
