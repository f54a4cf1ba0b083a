"""`message.reject`: to the dead-letter topic, and then acknowledged."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from pullstream import AsyncSubscriberClient, Message, PublisherClient, SubscriberClient
from pullstream_emulator import Emulator
from pullstream_protocol.errors import NotFound, PermissionDenied

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


def test_a_rejected_message_goes_to_the_dead_letter_topic(emulator: Emulator) -> None:
    """With its content, Google's attributes and the reason; then it is acknowledged."""
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


def test_the_topic_is_read_once(emulator: Emulator) -> None:
    """One GetSubscription for each subscription of a client."""
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


def test_the_topic_may_be_given(emulator: Emulator) -> None:
    """Then the subscription needs no policy."""
    emulator.publish(TOPIC, b"order")
    with SubscriberClient(endpoint=emulator.endpoint) as client:
        (message,) = client.fetch(PLAIN)
        message.reject("bad", OTHER_DEAD)
        emulator.wait_until_acked(PLAIN)
    assert len(emulator.messages(OTHER_DEAD)) == 1


def test_without_a_topic_the_message_stays_leased(emulator: Emulator) -> None:
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


def test_a_failed_publish_acknowledges_nothing(emulator: Emulator) -> None:
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


def test_a_lost_reply_publishes_nothing_twice(emulator: Emulator) -> None:
    """The call is repeated with the same idempotency key."""
    emulator.publish(TOPIC, b"order")
    emulator.faults.lose_reply("Publish", times=2)
    with SubscriberClient(endpoint=emulator.endpoint) as client:
        (message,) = client.fetch(SUBSCRIPTION)
        message.reject("bad")
    assert len(emulator.messages(DEAD)) == 1


def test_a_long_reason_is_shortened(emulator: Emulator) -> None:
    """An attribute may have 1,024 bytes."""
    emulator.publish(TOPIC, b"order")
    with SubscriberClient(endpoint=emulator.endpoint) as client:
        (message,) = client.fetch(SUBSCRIPTION)
        message.reject("ü" * 2000)
    (dead,) = emulator.messages(DEAD)
    reason = dead.attributes["pullstream_reject_reason"]
    assert len(reason.encode()) <= 1024
    assert reason.endswith("üü...")


def test_fetched_messages_of_an_event_loop_are_rejected(emulator: Emulator) -> None:
    """On a thread, because the call blocks."""
    emulator.publish(TOPIC, b"order")

    async def main() -> None:
        async with AsyncSubscriberClient(endpoint=emulator.endpoint) as client:
            (message,) = await client.fetch(SUBSCRIPTION)
            await asyncio.to_thread(message.reject, "bad")
            (other,) = await client.fetch(PLAIN)
            with pytest.raises(NotFound):
                await asyncio.to_thread(other.reject, "bad", "projects/project-1/topics/missing")

    asyncio.run(main())
    assert len(emulator.messages(DEAD)) == 1
