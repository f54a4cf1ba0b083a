"""`message.reject`: to the dead-letter topic, and then acknowledged."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from pullstream import (
    AsyncSubscriberClient,
    Message,
    PublisherClient,
    SchemaServiceClient,
    SubscriberClient,
)
from pullstream_emulator import Emulator
from pullstream_protocol.errors import NotFound, PermissionDenied
from pullstream_protocol.messages import pubsub_pb2 as pubsub

TOPIC = "projects/project-1/topics/orders"
SUBSCRIPTION = "projects/project-1/subscriptions/billing"
PLAIN = "projects/project-1/subscriptions/plain"
DEAD = "projects/project-1/topics/dead"
OTHER_DEAD = "projects/project-1/topics/other-dead"


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator() as running, SubscriberClient(endpoint=running.endpoint) as client:
        with PublisherClient(endpoint=running.endpoint) as publisher:
            for name in (TOPIC, DEAD, OTHER_DEAD):
                publisher.create_topic(name=name)
        client.create_subscription(
            request={
                "name": SUBSCRIPTION,
                "topic": TOPIC,
                "dead_letter_policy": {"dead_letter_topic": DEAD, "max_delivery_attempts": 5},
                "enable_message_ordering": True,
            }
        )
        client.create_subscription(name=PLAIN, topic=TOPIC)
        yield running


def rejected(emulator: Emulator, reason: str = "bad", **attributes: str) -> pubsub.PubsubMessage:
    """Publish a message, reject it, and return the only dead letter."""
    emulator.publish(TOPIC, b"order", **attributes)
    with SubscriberClient(endpoint=emulator.endpoint) as client:
        (message,) = client.fetch(SUBSCRIPTION)
        message.reject(reason)
    (dead,) = emulator.messages(DEAD)
    return dead


def test_rejecting_a_message_copies_it_to_the_dead_letter_topic_and_acks_the_message(
    emulator: Emulator,
) -> None:
    """The copy has its content, Google's attributes and the reason. The original is acked."""
    copies: list[str] = []
    done = threading.Event()

    def callback(message: Message) -> None:
        copies.append(message.reject("no such customer"))
        done.set()

    emulator.publish(TOPIC, b"order", ordering_key="c-1", origin="shop")
    with SubscriberClient(endpoint=emulator.endpoint) as client:
        client.subscribe(SUBSCRIPTION, callback)
        assert done.wait(10)
        emulator.wait_until_acked(SUBSCRIPTION)
    (dead,) = emulator.messages(DEAD)
    assert [dead.message_id] == copies
    assert (dead.data, dead.ordering_key) == (b"order", "c-1")
    published = dead.attributes.pop("CloudPubSubDeadLetterSourceTopicPublishTime")
    assert published.endswith("Z")
    assert dict(dead.attributes) == {
        "origin": "shop",
        "CloudPubSubDeadLetterSourceDeliveryCount": "1",
        "CloudPubSubDeadLetterSourceSubscription": "billing",
        "CloudPubSubDeadLetterSourceSubscriptionProject": "project-1",
        "pullstream_reject_reason": "no such customer",
    }


def test_rejecting_many_messages_looks_up_the_dead_letter_topic_once_per_subscription(
    emulator: Emulator,
) -> None:
    """A client makes one GetSubscription for each subscription."""
    for number in range(3):
        emulator.publish(TOPIC, b"%d" % number)
    with SubscriberClient(endpoint=emulator.endpoint) as client:
        with client.fetch(SUBSCRIPTION, 3, min_messages=3) as messages:
            messages[0].reject("bad")
            emulator.faults.error("GetSubscription", PermissionDenied("no"))
            for message in messages[1:]:
                message.reject("bad")
        assert emulator.backlog(SUBSCRIPTION) == 0
    assert sorted(message.data for message in emulator.messages(DEAD)) == [b"0", b"1", b"2"]


def test_rejecting_a_message_publishes_to_the_dead_letter_topic_given_as_argument(
    emulator: Emulator,
) -> None:
    """The subscription needs no policy then."""
    emulator.publish(TOPIC, b"order")
    with SubscriberClient(endpoint=emulator.endpoint) as client:
        (message,) = client.fetch(PLAIN)
        message.reject("bad", OTHER_DEAD)
        emulator.wait_until_acked(PLAIN)
    assert len(emulator.messages(OTHER_DEAD)) == 1


def test_a_message_rejected_without_a_dead_letter_topic_stays_leased(emulator: Emulator) -> None:
    """The error names the missing setting. The next reject of the message may succeed."""
    emulator.publish(TOPIC, b"order")
    with (
        SubscriberClient(endpoint=emulator.endpoint) as client,
        client.fetch(PLAIN) as messages,
    ):
        with pytest.raises(ValueError, match="plain has no dead-letter topic; set a dead-letter"):
            messages[0].reject("bad")
        assert emulator.backlog(PLAIN) == 1
        assert messages[0].settled is None
        messages[0].reject("bad", DEAD)
        with pytest.raises(ValueError, match=r"is settled \(ack\); reject it instead of"):
            messages[0].reject("bad", DEAD)


def test_a_rejected_message_that_cannot_be_dead_lettered_is_not_acknowledged(
    emulator: Emulator,
) -> None:
    """In a callback the error nacks the message, which is delivered again."""
    emulator.publish(TOPIC, b"order")
    seen: list[str] = []
    done = threading.Event()

    def callback(message: Message) -> None:
        seen.append(message.message_id)
        if len(seen) == 1:
            message.reject("bad", "projects/project-1/topics/missing")
        message.reject("bad")
        done.set()

    with SubscriberClient(endpoint=emulator.endpoint) as client:
        client.subscribe(PLAIN, lambda message: message.ack())
        client.subscribe(SUBSCRIPTION, callback)
        assert done.wait(10)
        emulator.wait_until_acked(SUBSCRIPTION)
    assert len(seen) == 2
    assert len(emulator.messages(DEAD)) == 1


def test_rejecting_a_message_publishes_the_dead_letter_once_even_if_the_reply_is_lost(
    emulator: Emulator,
) -> None:
    """The call is repeated with the same idempotency key."""
    emulator.publish(TOPIC, b"order")
    emulator.faults.lose_reply("Publish", times=2)
    with SubscriberClient(endpoint=emulator.endpoint) as client:
        (message,) = client.fetch(SUBSCRIPTION)
        message.reject("bad")
    assert len(emulator.messages(DEAD)) == 1


def test_the_reason_of_a_rejected_message_is_shortened_to_the_size_limit_of_attributes(
    emulator: Emulator,
) -> None:
    """An attribute may have 1,024 bytes."""
    reason = rejected(emulator, "ü" * 2000).attributes["pullstream_reject_reason"]
    assert len(reason.encode()) <= 1024
    assert reason.endswith("üü...")


async def test_messages_fetched_on_an_event_loop_can_be_rejected_to_the_dead_letter_topic(
    emulator: Emulator,
) -> None:
    """The call blocks, so it belongs on a thread."""
    emulator.publish(TOPIC, b"order")
    async with AsyncSubscriberClient(endpoint=emulator.endpoint) as client:
        (message,) = await client.fetch(SUBSCRIPTION)
        await asyncio.to_thread(message.reject, "bad")
        (other,) = await client.fetch(PLAIN)
        with pytest.raises(NotFound):
            await asyncio.to_thread(other.reject, "bad", "projects/project-1/topics/missing")
    assert len(emulator.messages(DEAD)) == 1


def test_messages_of_a_topic_with_a_schema_can_be_rejected_to_the_dead_letter_topic(
    emulator: Emulator,
) -> None:
    """The copy has no attributes that only servers set, but keeps the context of its trace."""
    with (
        SubscriberClient(endpoint=emulator.endpoint) as client,
        PublisherClient(endpoint=emulator.endpoint) as publisher,
        SchemaServiceClient(endpoint=emulator.endpoint) as schemas,
    ):
        schema = schemas.create_schema(
            parent="projects/project-1",
            schema_id="number",
            schema={"type": "AVRO", "definition": '"int"'},
        )
        topic, subscription = f"{TOPIC}-typed", f"{SUBSCRIPTION}-typed"
        settings = {"schema": schema.name, "encoding": "JSON"}
        publisher.create_topic(request={"name": topic, "schema_settings": settings})
        client.create_subscription(name=subscription, topic=topic)
        context = {"googclient_traceparent": "00-ab-cd-01"}
        publisher.publish(topic, b"1", origin="shop", **context).result(10)
        (message,) = client.fetch(subscription)
        assert message.attributes["googclient_schemaencoding"] == "JSON"
        message.reject("bad", DEAD)
    (dead,) = emulator.messages(DEAD)
    kept = {name for name in dead.attributes if not name.startswith(("CloudPubSub", "pullstream"))}
    assert kept == {"origin", "googclient_traceparent"}


@pytest.mark.parametrize("count", [95, 96, 97, 99, 100])
def test_a_dead_letter_leaves_out_reject_attributes_above_the_limit_of_attributes(
    emulator: Emulator, count: int
) -> None:
    """The attributes of rejection give way, the less important ones first."""
    given = {f"a{number}": "v" for number in range(count)}
    dead = rejected(emulator, **given)
    added = {name: value for name, value in dead.attributes.items() if name not in given}
    assert dead.attributes.items() >= given.items()
    assert sorted(added) == sorted(
        [
            "CloudPubSubDeadLetterSourceSubscription",
            "CloudPubSubDeadLetterSourceSubscriptionProject",
            "pullstream_reject_reason",
            "CloudPubSubDeadLetterSourceDeliveryCount",
            "CloudPubSubDeadLetterSourceTopicPublishTime",
        ][: 100 - count]
    )


def test_rejecting_a_dead_letter_replaces_the_attributes_of_its_earlier_rejection(
    emulator: Emulator,
) -> None:
    """The new attributes of rejection replace the old ones, which use no room."""
    emulator.publish(TOPIC, b"order", **{f"a{number}": "v" for number in range(95)})
    with SubscriberClient(endpoint=emulator.endpoint) as client:
        client.create_subscription(name=f"{PLAIN}-dead", topic=DEAD)
        client.fetch(SUBSCRIPTION)[0].reject("first")
        client.fetch(f"{PLAIN}-dead")[0].reject("second", OTHER_DEAD)
    (dead,) = emulator.messages(OTHER_DEAD)
    assert dead.attributes["pullstream_reject_reason"] == "second"
    assert dead.attributes["CloudPubSubDeadLetterSourceSubscription"] == "plain-dead"
    assert len(dead.attributes) == 100


@pytest.mark.parametrize("spare", [0, 50, 200, 400])
def test_a_dead_letter_near_the_message_size_limit_leaves_out_reject_attributes(
    emulator: Emulator, spare: int
) -> None:
    """The attributes of rejection give way as far as there is no room."""
    largest = 10_000_000 - len(f"..{TOPIC}......") - 10
    emulator.publish(TOPIC, b"x" * (largest - spare))
    with SubscriberClient(endpoint=emulator.endpoint) as client:
        (message,) = client.fetch(SUBSCRIPTION)
        message.reject("ü" * 40, DEAD)
    (dead,) = emulator.messages(DEAD)
    assert len(dead.data) == largest - spare
    assert ("pullstream_reject_reason" in dead.attributes) == (spare >= 400)


def test_characters_of_a_reject_reason_that_utf_8_cannot_encode_are_replaced(
    emulator: Emulator,
) -> None:
    """The reason may contain the name of a file."""
    emulator.publish(TOPIC, b"order")
    with SubscriberClient(endpoint=emulator.endpoint) as client:
        (message,) = client.fetch(SUBSCRIPTION)
        with pytest.raises(TypeError, match="reason is None; it must be a str"):
            message.reject(None)  # type: ignore[arg-type]
        message.reject("no file d\udce4ta")
    (dead,) = emulator.messages(DEAD)
    assert dead.attributes["pullstream_reject_reason"] == "no file d?ta"
