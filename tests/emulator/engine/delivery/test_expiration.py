"""Expiration: an unused subscription is deleted after its ttl."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from pullstream_protocol.errors import NotFound
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION, TOPIC, Broker

DAY = 86400


def with_ttl(days: int) -> Broker:
    policy = pubsub.ExpirationPolicy(ttl=Duration(seconds=days * DAY))
    retention = Duration(seconds=min(days, 7) * DAY)
    return Broker(expiration_policy=policy, message_retention_duration=retention)


def is_there(broker: Broker) -> bool:
    """Return whether it exists, by a call that does not count as a use."""
    try:
        return broker.backlog >= 0
    except NotFound:
        return False


def expires_after(broker: Broker, seconds: int) -> bool:
    """Return whether the subscription exists for exactly this time."""
    broker.advance(seconds - 1)
    was_there = is_there(broker)
    broker.advance(1)
    return was_there and not is_there(broker)


def test_an_unused_subscription_is_deleted_after_its_time_to_live() -> None:
    """The subscription is deleted exactly on time, with its backlog. Its topic stays."""
    broker = with_ttl(2)
    broker.publish("a")
    assert expires_after(broker, 2 * DAY)
    assert broker.engine.kept_bytes == 0
    broker.publish("b")
    broker.engine.create_subscription(pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC))
    assert broker.backlog == 0


def test_a_subscription_expires_after_31_days_by_default(broker: Broker) -> None:
    """The production service returns this value, too."""
    assert broker.engine.get_subscription(SUBSCRIPTION).expiration_policy.ttl.seconds == 31 * DAY
    assert expires_after(broker, 31 * DAY)


def test_a_subscription_with_an_expiration_policy_without_ttl_never_expires() -> None:
    """The rule holds however long the subscription is unused."""
    broker = Broker(expiration_policy=pubsub.ExpirationPolicy())
    broker.advance(1000 * DAY)
    assert is_there(broker)


def calls(broker: Broker) -> list[Any]:
    seek = pubsub.SeekRequest(subscription=SUBSCRIPTION)
    seek.time.FromSeconds(1)
    push = pubsub.ModifyPushConfigRequest(subscription=SUBSCRIPTION)
    (got,) = broker.join().take()
    return [
        lambda: broker.engine.get_subscription(SUBSCRIPTION),
        lambda: broker.engine.modify_push_config(push),
        lambda: broker.engine.seek(seek),
        lambda: broker.modify(10, got),
        lambda: broker.acknowledge(got),
        lambda: broker.join().leave(),
    ]


@pytest.mark.parametrize("number", range(6))
def test_every_call_for_a_subscription_restarts_its_time_to_live(number: int) -> None:
    """The ttl starts again."""
    broker = with_ttl(2)
    broker.publish("a")
    consumer = broker.join()
    call = calls(broker)[number]
    consumer.leave()
    broker.advance(DAY)
    call()
    broker.engine.disconnect(NotFound("gone"))
    broker.advance(2 * DAY - 1)
    assert is_there(broker)


def test_a_connected_consumer_keeps_its_subscription_from_expiring() -> None:
    """The ttl starts when the last consumer leaves."""
    broker = with_ttl(2)
    consumer = broker.join()
    for _ in range(5):
        broker.advance(DAY)
    consumer.leave()
    assert expires_after(broker, 2 * DAY)


def test_the_ttl_of_a_shortened_expiration_policy_counts_from_the_update(broker: Broker) -> None:
    """An update counts as a use."""
    broker.advance(10 * DAY)
    broker.update(expiration_policy={"ttl": {"seconds": 7 * DAY}})
    assert expires_after(broker, 7 * DAY)
