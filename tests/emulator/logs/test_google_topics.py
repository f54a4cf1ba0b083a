"""Feeds and topics of google.pubsub.v1: two views of the same data."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration

from pullstream_emulator.engine import Consumer
from pullstream_protocol.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
)
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.logs.driver import PROJECT, TOPIC, Driver, Reader, seqs

SUBSCRIPTION = f"{PROJECT}/subscriptions/billing"


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.engine.create_topic(pubsub.Topic(name=TOPIC))
    return driver


def publish(driver: Driver, *data: str) -> list[str]:
    messages = [pubsub.PubsubMessage(data=d.encode()) for d in data]
    return list(driver.engine.publish(pubsub.PublishRequest(topic=TOPIC, messages=messages)))


def subscribe(driver: Driver, **settings: object) -> None:
    driver.engine.create_subscription(
        pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC, **settings)  # type: ignore[arg-type]
    )


def pulled(driver: Driver) -> list[int]:
    consumer = Consumer(ack_deadline=600, wake=lambda: None)
    subscription = driver.engine.join(SUBSCRIPTION, consumer)
    taken = driver.engine.take(subscription, consumer)
    return seqs([delivery.record.message() for _, delivery in taken])


def test_a_message_published_to_a_feed_topic_is_a_record_with_its_message_id_as_sequence(
    driver: Driver,
) -> None:
    driver.put()
    assert publish(driver, "a", "b") == ["1", "2"]
    assert driver.append("c") == [3]
    assert seqs(driver.read().messages) == [1, 2, 3]


def test_messages_from_before_a_topic_became_a_feed_are_reported_to_readers_as_too_old(
    driver: Driver,
) -> None:
    publish(driver, "a", "b")
    response = driver.read()
    assert (response.gap.from_seq, response.gap.to_seq) == (1, 2)
    assert response.gap.reason == feeds.FROM_SEQ_TOO_OLD
    publish(driver, "c")
    response = driver.read(2)
    assert (response.HasField("gap"), seqs(response.messages)) == (False, [3])


def test_publishing_a_message_to_a_topic_does_not_turn_the_topic_into_a_feed(
    driver: Driver,
) -> None:
    publish(driver, "a")
    with pytest.raises(NotFound, match="not a feed"):
        driver.state()
    assert driver.feeds.list_feeds(feeds.ListFeedsRequest(project=PROJECT)).feeds == []
    assert driver.engine.kept_bytes == 0


def test_the_record_cap_of_a_feed_does_not_trim_the_backlog_of_its_subscriptions(
    driver: Driver,
) -> None:
    subscribe(driver)
    driver.put(cap_records=1, ttl_ms=1000)
    publish(driver, *"abcde")
    driver.advance(10)
    assert driver.state().count == 0
    assert pulled(driver) == [1, 2, 3, 4, 5]


def test_messages_kept_only_by_a_subscription_are_not_readable_in_the_feed(driver: Driver) -> None:
    subscribe(driver)
    driver.put(cap_records=2)
    publish(driver, *"abc")
    assert seqs(driver.read(1).messages) == [2, 3]
    # Only the subscription keeps the message beyond the cap. The other messages count once.
    assert driver.engine.kept_bytes > driver.state().bytes
    driver.engine.delete_subscription(SUBSCRIPTION)
    assert driver.engine.kept_bytes == driver.state().bytes


def test_a_feed_topic_at_its_record_cap_refuses_a_publish_without_using_message_ids(
    driver: Driver,
) -> None:
    subscribe(driver)
    driver.put(cap_records=2, discard=feeds.REJECT)
    publish(driver, "a")
    with pytest.raises(FailedPrecondition, match="is full") as refused:
        publish(driver, "b", "c")
    assert refused.value.reason == "TOPIC_FULL"
    assert (driver.state().head_seq, pulled(driver)) == (1, [1])
    assert publish(driver, "b") == ["2"]


def test_a_dead_letter_topic_at_its_record_cap_accepts_dead_letters(driver: Driver) -> None:
    """Otherwise it would be lost or redelivered for ever."""
    dead = f"{PROJECT}/topics/dead"
    driver.put(dead, cap_records=1, discard=feeds.REJECT)
    driver.append("full", topic=dead)
    subscribe(
        driver,
        dead_letter_policy=pubsub.DeadLetterPolicy(dead_letter_topic=dead, max_delivery_attempts=5),
    )
    publish(driver, "bad")
    for _ in range(5):
        assert pulled(driver) == [1]
        driver.engine.expire(SUBSCRIPTION)
    assert (pulled(driver), driver.state(dead).count) == ([], 2)


def test_records_beyond_the_cap_of_a_feed_are_not_readable_though_the_topic_retains_them(
    driver: Driver,
) -> None:
    driver.engine.update_topic(
        pubsub.UpdateTopicRequest(
            topic=pubsub.Topic(name=TOPIC, message_retention_duration=Duration(seconds=600)),
            update_mask={"paths": ["message_retention_duration"]},
        )
    )
    driver.put(cap_records=1)
    publish(driver, *"abc")
    assert seqs(driver.read(2).messages) == [3]
    driver.advance(601)
    assert driver.engine.kept_bytes == driver.state().bytes > 0


def test_a_feed_append_with_messages_beyond_the_publish_limits_is_refused(driver: Driver) -> None:
    driver.put()
    for messages in (
        [pubsub.PubsubMessage()],
        [pubsub.PubsubMessage(data=b"x", attributes={"googx": "y"})],
        [pubsub.PubsubMessage(data=b"x", ordering_key="k" * 1025)],
    ):
        with pytest.raises(InvalidArgument):
            driver.feeds.append(feeds.AppendRequest(topic=TOPIC, messages=messages))
    assert driver.state().head_seq == 0


def test_a_broker_at_its_byte_limit_refuses_publishes_and_feed_appends() -> None:
    small = Driver(max_bytes=1000)
    small.put()
    small.append("x" * 800)
    with pytest.raises(ResourceExhausted):
        small.append("x" * 200)
    with pytest.raises(ResourceExhausted):
        publish(small, "x" * 200)
    # A refused publish creates no topic.
    with pytest.raises(ResourceExhausted):
        small.append("x" * 200, topic=f"{PROJECT}/topics/other")
    with pytest.raises(NotFound):
        small.engine.get_topic(f"{PROJECT}/topics/other")


def test_deleting_a_topic_frees_the_memory_of_records_that_only_its_feed_kept(
    driver: Driver,
) -> None:
    subscribe(driver)
    driver.put()
    publish(driver, "a", "b")
    reader = Reader(driver.watch())
    driver.delete_topic()
    assert reader.take()[0].WhichOneof("kind") == "topic_deleted"
    # Its subscription still has them.
    assert pulled(driver) == [1, 2]
    driver.engine.delete_subscription(SUBSCRIPTION)
    assert driver.engine.kept_bytes == 0


def test_a_publish_wakes_a_waiting_read_of_the_feed(driver: Driver) -> None:
    driver.put()
    wakes: list[str] = []
    driver.feeds.wait_for(TOPIC, lambda: wakes.append("woken"))
    publish(driver, "a")
    publish(driver, "b")
    assert wakes == ["woken"]
