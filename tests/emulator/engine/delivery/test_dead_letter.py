"""Messages with too many failed attempts, which move to a dead-letter topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pullstream_emulator.engine import Consumer, Delivery
from pullstream_protocol.errors import NotFound
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import PROJECT, SUBSCRIPTION, TOPIC, Broker, ConsumerDriver, Got
from tests.emulator.wire import Wire

DEAD_TOPIC = f"{PROJECT}/topics/dead"
DEAD_SUBSCRIPTION = f"{PROJECT}/subscriptions/undertaker"
POLICY = pubsub.DeadLetterPolicy(dead_letter_topic=DEAD_TOPIC, max_delivery_attempts=5)

Failure = Callable[[Broker, ConsumerDriver, Got], None]


def nack(broker: Broker, consumer: ConsumerDriver, got: Got) -> None:
    broker.nack(got)


def expire(broker: Broker, consumer: ConsumerDriver, got: Got) -> None:
    broker.advance(10)


def with_policy(*data: str, key: str = "", **fields: Any) -> Broker:
    """Return a broker with these messages. After five failures they go to DEAD_TOPIC."""
    broker = Broker()
    broker.engine.create_topic(pubsub.Topic(name=DEAD_TOPIC))
    broker.engine.create_subscription(pubsub.Subscription(name=DEAD_SUBSCRIPTION, topic=DEAD_TOPIC))
    broker.engine.delete_subscription(SUBSCRIPTION)
    broker.engine.create_subscription(
        pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC, dead_letter_policy=POLICY, **fields)
    )
    if data:
        broker.publish(*data, key=key)
    return broker


def buried(broker: Broker) -> list[pubsub.PubsubMessage]:
    """Return the messages in the subscription of the dead-letter topic."""
    consumer = Consumer(ack_deadline=600, wake=lambda: None)
    subscription = broker.engine.join(DEAD_SUBSCRIPTION, consumer)
    taken: list[tuple[str, Delivery]] = broker.engine.take(subscription, consumer)
    return [delivery.record.message() for _, delivery in taken]


@pytest.mark.parametrize("fail", [nack, expire])
def test_a_message_at_max_delivery_attempts_is_published_to_the_dead_letter_topic(
    fail: Failure,
) -> None:
    """The message is delivered the maximum number of times.

    After that only the other topic has it.
    """
    broker = with_policy("bad")
    consumer = broker.join(deadline=10)
    for attempt in range(5):
        (got,) = consumer.take()
        assert got.failed_before == attempt
        assert buried(broker) == []
        fail(broker, consumer, got)
    assert (consumer.take(), broker.backlog) == ([], 0)
    assert [message.data for message in buried(broker)] == [b"bad"]


def test_dead_lettering_a_message_keeps_other_messages_of_its_key_in_the_subscription() -> None:
    """The later messages are delivered again without it.

    Their consumer sees that the dead letter is gone.
    """
    broker = with_policy("bad", "1", "2", "3", key="k", enable_message_ordering=True)
    consumer = broker.join(deadline=600)
    for attempt in range(4):
        bad, *later = consumer.take()
        assert (bad.data, bad.failed_before) == ("bad", attempt)
        broker.nack(*later, bad)
    bad, one, _, three = consumer.take()
    broker.acknowledge(one)
    broker.acknowledge(three)
    broker.nack(bad)
    assert [message.data for message in buried(broker)] == [b"bad"]
    assert [(g.data, g.failed_before) for g in consumer.take()] == [("2", 0), ("3", 0)]
    assert broker.backlog == 2


def test_a_dead_letter_copy_names_its_source_subscription_and_message() -> None:
    """The copy is a new message with the content, attributes and key of the old one."""
    broker = with_policy()
    broker.advance(1.234)
    broker.publish("first", key="k", color="red")
    broker.publish("bad", key="k", color="blue")
    consumer = broker.join()
    first, bad = consumer.take()
    broker.acknowledge(first)
    broker.nack(bad)
    for _ in range(4):
        broker.nack(*consumer.take())
    (copy,) = buried(broker)
    assert (copy.data, copy.ordering_key, copy.message_id) == (b"bad", "k", "1")
    assert copy.publish_time.ToJsonString() == "2023-11-14T22:13:21.234Z"
    assert dict(copy.attributes) == {
        "color": "blue",
        "CloudPubSubDeadLetterSourceDeliveryCount": "5",
        "CloudPubSubDeadLetterSourceSubscription": "billing",
        "CloudPubSubDeadLetterSourceSubscriptionProject": "test",
        "CloudPubSubDeadLetterSourceTopicPublishTime": "2023-11-14T22:13:21.234Z",
    }


def test_deliveries_ended_by_a_leaving_consumer_do_not_count_towards_dead_lettering() -> None:
    """A consumer that leaves is not a failure of the message."""
    broker = with_policy("good")
    for _ in range(10):
        consumer = broker.join()
        assert consumer.take_data() == ["good"]
        consumer.leave()
    assert (broker.backlog, buried(broker)) == (1, [])


def test_a_failed_message_is_redelivered_if_its_dead_letter_topic_does_not_exist() -> None:
    """Attempts continue to count. When the topic exists again, the next failure is the last."""
    broker = with_policy()
    broker.engine.delete_topic(DEAD_TOPIC)
    broker.publish("bad")
    consumer = broker.join()
    for _ in range(8):
        broker.nack(*consumer.take())
    assert broker.backlog == 1
    broker.engine.create_topic(pubsub.Topic(name=DEAD_TOPIC))
    broker.nack(*consumer.take())
    assert broker.backlog == 0


def test_a_dead_letter_does_not_block_its_ordering_key() -> None:
    """The dead letter counts as acknowledged for its key.

    The later messages come again without it.
    """
    broker = with_policy("bad", "good", key="k", enable_message_ordering=True)
    consumer = broker.join()
    for _ in range(5):
        bad, good = consumer.take()
        broker.acknowledge(good)
        broker.nack(bad)
    assert [message.data for message in buried(broker)] == [b"bad"]
    assert broker.backlog == 0


def test_a_dead_letter_is_not_redelivered_with_earlier_messages_of_its_ordering_key() -> None:
    """The dead letter is not delivered again."""
    broker = with_policy("one", "bad", key="k", enable_message_ordering=True)
    consumer = broker.join()
    for _ in range(5):
        _, bad = consumer.take()
        broker.nack(bad)
        consumer.leave()
        consumer = broker.join()
    assert consumer.take_data() == ["one"]
    assert [message.data for message in buried(broker)] == [b"bad"]


def test_a_topic_may_be_its_own_dead_letter_topic(broker: Broker) -> None:
    """A failed message goes to the end of the same backlog, as a new message."""
    policy = pubsub.DeadLetterPolicy(dead_letter_topic=TOPIC)
    broker.update(dead_letter_policy=policy)
    broker.publish("bad", "next")
    consumer = broker.join()
    (bad,) = consumer.take(1)
    for _ in range(4):
        broker.nack(bad)
        bad = next(got for got in consumer.take() if got.data == "bad")
    broker.nack(bad)
    (again,) = consumer.take()
    assert (again.data, again.failed_before) == ("bad", 0)


def test_a_subscription_whose_dead_letter_topic_is_missing_is_refused(broker: Broker) -> None:
    """The check is the behaviour of the production service."""
    config = pubsub.Subscription(
        name=f"{PROJECT}/subscriptions/other", topic=TOPIC, dead_letter_policy=POLICY
    )
    with pytest.raises(NotFound, match=r"Resource not found \(resource=dead\)\."):
        broker.engine.create_subscription(config)


def test_the_delivery_attempt_of_a_message_is_zero_unless_a_dead_letter_policy_is_set(
    wire: Wire,
) -> None:
    """delivery_attempt is 0 without a policy. With a policy it starts at 1."""
    wire.create_with("a")
    (received,) = wire.pull()
    assert received.delivery_attempt == 0
    wire.call("CreateTopic", pubsub.Topic(name=DEAD_TOPIC))
    wire.update(dead_letter_policy=POLICY)
    wire.modify(0, received.ack_id)
    (received,) = wire.pull()
    assert received.delivery_attempt == 2


def test_nacks_that_a_client_marks_as_unseen_do_not_increase_the_delivery_attempt(
    wire: Wire,
) -> None:
    """A client reports the return in the metadata of its call."""
    wire.call("CreateTopic", pubsub.Topic(name=DEAD_TOPIC))
    wire.create_with("a", dead_letter_policy=POLICY)
    for _ in range(7):
        (got,) = wire.pull()
        assert got.delivery_attempt == 1
        wire.modify(0, got.ack_id, unseen=True)
    (got,) = wire.pull()
    wire.modify(0, got.ack_id)
    (got,) = wire.pull()
    assert got.delivery_attempt == 2
