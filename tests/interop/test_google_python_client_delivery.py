"""google-cloud-pubsub for Python: delivery features of a subscription."""

from __future__ import annotations

import datetime
import queue
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud.pubsub_v1.subscriber.exceptions import AcknowledgeError, AcknowledgeStatus
from google.protobuf.field_mask_pb2 import FieldMask

from pullstream_emulator.pytest_plugin import pubsub_emulator as pubsub_emulator
from pullstream_protocol.clock import ManualClock
from tests.interop.google_python import PROJECT, SUBSCRIPTION, TIMEOUT, TOPIC, Clients, Connect
from tests.interop.google_python import clients as clients
from tests.interop.google_python import connect as connect
from tests.interop.google_python import connect_timeless as connect_timeless
from tests.interop.google_python import timeless as timeless

GRAVE = f"{PROJECT}/topics/grave"
MOURNERS = f"{PROJECT}/subscriptions/mourners"
SNAPSHOT = f"{PROJECT}/snapshots/before"


def moment(clock: ManualClock, offset: float = 0.0) -> datetime.datetime:
    """Return the broker's time plus some seconds."""
    return datetime.datetime.fromtimestamp(clock.now() + offset, datetime.timezone.utc)


# ---- exactly-once delivery -----------------------------------------------------------------------


def test_a_google_client_gets_an_error_for_an_expired_exactly_once_ack_id(
    connect_timeless: Connect, timeless: ManualClock
) -> None:
    """The error names the ID, and the message is delivered once more."""
    clients = connect_timeless(enable_exactly_once_delivery=True, ack_deadline_seconds=10)
    clients.publish(b"data")
    (late,) = clients.pull()
    timeless.advance(10.5)
    with pytest.raises(exceptions.InvalidArgument) as refused:
        clients.acknowledge(late)
    assert refused.value.reason == "EXACTLY_ONCE_ACKID_FAILURE"
    assert refused.value.metadata == {late.ack_id: "PERMANENT_FAILURE_INVALID_ACK_ID"}
    assert clients.drain() == [b"data"]


def test_a_google_client_can_repeat_the_valid_ack_ids_of_a_request_with_an_invalid_one(
    connect: Connect,
) -> None:
    """The error names the good IDs as failures to repeat, and their repeat succeeds."""
    clients = connect(enable_exactly_once_delivery=True)
    clients.publish(b"a", b"b")
    first, second = clients.pull()
    clients.subscriber.modify_ack_deadline(
        subscription=SUBSCRIPTION, ack_ids=[first.ack_id], ack_deadline_seconds=0
    )
    with pytest.raises(exceptions.InvalidArgument) as refused:
        clients.acknowledge(first, second)
    assert refused.value.metadata == {
        first.ack_id: "PERMANENT_FAILURE_INVALID_ACK_ID",
        second.ack_id: "TRANSIENT_FAILURE_INVALID_ACK_ID",
    }
    clients.acknowledge(second)
    assert clients.drain() == [b"a"]


def test_a_google_client_can_repeat_an_exactly_once_acknowledgement_without_an_error(
    connect: Connect,
) -> None:
    """The client cannot distinguish a lost answer from a lost call."""
    clients = connect(enable_exactly_once_delivery=True)
    clients.publish(b"a")
    (message,) = clients.pull()
    clients.acknowledge(message)
    clients.acknowledge(message)
    assert clients.drain() == []


def test_a_google_client_callback_gets_an_error_for_a_late_exactly_once_ack(
    connect: Connect,
) -> None:
    """Another subscriber has ended the lease of the callback's message."""
    clients = connect(enable_exactly_once_delivery=True)
    results: queue.Queue[Any] = queue.Queue()

    def callback(message: Any) -> None:
        clients.subscriber.modify_ack_deadline(
            subscription=SUBSCRIPTION, ack_ids=[message.ack_id], ack_deadline_seconds=0
        )
        try:
            results.put(message.ack_with_response().result(TIMEOUT))
        except AcknowledgeError as error:
            results.put(error.error_code)

    with clients.subscribe(callback):
        clients.publish(b"data")
        assert results.get(timeout=TIMEOUT) is AcknowledgeStatus.INVALID_ACK_ID


# ---- dead letters, retries -----------------------------------------------------------------------


def test_a_message_nacked_by_a_google_client_beyond_the_attempt_limit_is_dead_lettered(
    clients: Clients,
) -> None:
    """The new message has the old data, and attributes with its origin."""
    clients.publisher.create_topic(name=GRAVE)
    clients.subscriber.create_subscription(name=MOURNERS, topic=GRAVE)
    clients.subscriber.update_subscription(
        subscription={
            "name": SUBSCRIPTION,
            "dead_letter_policy": {"dead_letter_topic": GRAVE, "max_delivery_attempts": 5},
        },
        update_mask=FieldMask(paths=["dead_letter_policy"]),
    )
    attempts: queue.Queue[int] = queue.Queue()

    def callback(message: Any) -> None:
        attempts.put(message.delivery_attempt)
        message.nack()

    clients.publish(b"poison", origin="test")
    with clients.subscribe(callback):
        (dead,) = clients.pull(subscription=MOURNERS)
    assert [attempts.get_nowait() for _ in range(5)] == [1, 2, 3, 4, 5]
    assert attempts.empty()
    assert dead.message.data == b"poison"
    attributes = dict(dead.message.attributes)
    published = attributes.pop("CloudPubSubDeadLetterSourceTopicPublishTime")
    assert published.endswith("Z")
    assert attributes == {
        "origin": "test",
        "CloudPubSubDeadLetterSourceDeliveryCount": "5",
        "CloudPubSubDeadLetterSourceSubscription": "billing",
        "CloudPubSubDeadLetterSourceSubscriptionProject": "test-project",
    }
    assert clients.drain() == []


def test_a_google_client_receives_a_nacked_message_again_after_the_retry_backoff(
    connect_timeless: Connect, timeless: ManualClock
) -> None:
    """The backoff grows up to the maximum."""
    clients = connect_timeless(
        retry_policy={"minimum_backoff": {"seconds": 20}, "maximum_backoff": {"seconds": 60}}
    )
    clients.publish(b"data")
    (received,) = clients.pull()
    for backoff in (20, 40, 60, 60):
        clients.nack(received)
        timeless.advance(backoff - 1)
        assert clients.pull(wait=False) == []
        timeless.advance(1.5)
        (received,) = clients.pull(wait=False)


# ---- filters -------------------------------------------------------------------------------------


def test_a_google_client_receives_only_messages_that_match_the_subscription_filter(
    connect: Connect,
) -> None:
    """The other messages count as acknowledged."""
    clients = connect(filter='attributes.country = "no" OR hasPrefix(attributes.country, "s")')
    for country in ("de", "no", "se"):
        clients.publish(country.encode(), country=country)
    clients.publish(b"nowhere")
    assert clients.drain() == [b"no", b"se"]
    assert clients.drain() == []


def test_a_google_client_cannot_set_an_invalid_subscription_filter_or_change_a_filter(
    connect: Connect,
) -> None:
    """A wrong filter and a change of the filter are refused."""
    clients = connect(filter="attributes:country")
    with pytest.raises(exceptions.InvalidArgument):
        clients.subscriber.create_subscription(
            request={"name": MOURNERS, "topic": TOPIC, "filter": "attributes.country ="}
        )
    with pytest.raises(exceptions.InvalidArgument, match="not mutable"):
        clients.subscriber.update_subscription(
            subscription={"name": SUBSCRIPTION, "filter": ""},
            update_mask=FieldMask(paths=["filter"]),
        )


# ---- detach, seek, snapshots ---------------------------------------------------------------------


def test_a_pull_by_a_google_client_from_a_detached_subscription_fails(clients: Clients) -> None:
    """The subscription stays, marked as detached, and its topic no longer lists it."""
    clients.publish(b"data")
    clients.publisher.detach_subscription(request={"subscription": SUBSCRIPTION})
    assert clients.subscriber.get_subscription(subscription=SUBSCRIPTION).detached
    assert list(clients.publisher.list_topic_subscriptions(topic=TOPIC)) == []
    with pytest.raises(exceptions.FailedPrecondition):
        clients.pull(wait=False)


def test_a_google_client_can_seek_a_subscription_to_a_past_or_a_future_time(
    connect_timeless: Connect, timeless: ManualClock
) -> None:
    """A seek into the future drops the backlog. A seek into the past restores retained messages."""
    clients = connect_timeless(retain_acked_messages=True)
    seek = clients.subscriber.seek
    clients.publish(b"early")
    timeless.advance(60)
    between = moment(timeless)
    timeless.advance(60)
    clients.publish(b"late")
    seek(request={"subscription": SUBSCRIPTION, "time": moment(timeless, 60)})
    assert clients.drain() == []
    seek(request={"subscription": SUBSCRIPTION, "time": between})
    assert clients.drain() == [b"late"]
    seek(request={"subscription": SUBSCRIPTION, "time": moment(timeless, -600)})
    assert clients.drain() == [b"early", b"late"]


def test_a_google_client_receives_a_leased_message_again_after_a_seek(
    connect_timeless: Connect, timeless: ManualClock
) -> None:
    """The message is redelivered, and the acknowledgement of the earlier delivery is too late."""
    clients = connect_timeless()
    clients.publish(b"data")
    (out,) = clients.pull()
    clients.subscriber.seek(request={"subscription": SUBSCRIPTION, "time": moment(timeless, -60)})
    clients.acknowledge(out)
    assert clients.drain() == [b"data"]


def test_a_google_client_can_restore_the_backlog_of_a_snapshot(clients: Clients) -> None:
    """A seek to the snapshot restores its unacknowledged messages and all later ones."""
    clients.publish(b"acknowledged")
    assert clients.drain() == [b"acknowledged"]
    clients.publish(b"kept")
    clients.subscriber.create_snapshot(name=SNAPSHOT, subscription=SUBSCRIPTION)
    clients.publish(b"later")
    assert clients.drain() == [b"kept", b"later"]
    clients.subscriber.seek(request={"subscription": SUBSCRIPTION, "snapshot": SNAPSHOT})
    assert clients.drain() == [b"kept", b"later"]


def test_a_google_client_can_manage_snapshots(clients: Clients) -> None:
    """The calls create, get, list, update by mask, and delete."""
    subscriber = clients.subscriber
    made = subscriber.create_snapshot(
        request={"name": SNAPSHOT, "subscription": SUBSCRIPTION, "labels": {"a": "b"}}
    )
    assert (made.topic, dict(made.labels)) == (TOPIC, {"a": "b"})
    assert subscriber.get_snapshot(snapshot=SNAPSHOT) == made
    subscriber.update_snapshot(
        snapshot={"name": SNAPSHOT, "labels": {"c": "d"}}, update_mask=FieldMask(paths=["labels"])
    )
    (listed,) = subscriber.list_snapshots(project=PROJECT)
    assert dict(listed.labels) == {"c": "d"}
    assert list(clients.publisher.list_topic_snapshots(topic=TOPIC)) == [SNAPSHOT]
    subscriber.delete_snapshot(snapshot=SNAPSHOT)
    assert list(subscriber.list_snapshots(project=PROJECT)) == []
    with pytest.raises(exceptions.NotFound):
        subscriber.seek(request={"subscription": SUBSCRIPTION, "snapshot": SNAPSHOT})


# ---- push ----------------------------------------------------------------------------------------


def test_a_google_client_cannot_pull_a_push_subscription(connect: Connect) -> None:
    """Pulling works after the push endpoint is removed."""
    clients = connect(push_config={"push_endpoint": "http://localhost:1/push"})
    with pytest.raises(exceptions.FailedPrecondition, match="not supported for this subscription"):
        clients.pull(wait=False)
    clients.subscriber.modify_push_config(subscription=SUBSCRIPTION, push_config={})
    assert clients.pull(wait=False) == []
