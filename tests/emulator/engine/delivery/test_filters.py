"""Effect of filters: excluded messages never enter the backlog."""

from __future__ import annotations

import pytest

from pullstream_protocol.errors import InvalidArgument
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import PROJECT, TOPIC, Broker, broker_holding
from tests.emulator.wire import Wire, data_of

RED = 'attributes.color = "red"'


def test_a_subscription_delivers_only_messages_that_match_its_filter() -> None:
    """The rule holds for one publish request and for several."""
    broker = broker_holding("no", filter=RED)
    broker.publish("yes", color="red")
    broker.publish("neither", color="blue")
    assert broker.backlog == 1
    assert broker.join().take_data() == ["yes"]


def test_each_subscription_of_a_topic_has_its_own_filter() -> None:
    """A message that one filter excludes may match another."""
    broker = Broker(filter=RED)
    other = f"{PROJECT}/subscriptions/all"
    broker.engine.create_subscription(pubsub.Subscription(name=other, topic=TOPIC))
    broker.publish("a", color="red")
    broker.publish("b")
    assert (broker.backlog, broker.engine.backlog(other)) == (1, 2)


def test_messages_excluded_by_the_filter_of_a_subscription_take_no_memory() -> None:
    """No subscription keeps such a message."""
    broker = broker_holding("x" * 1000, filter=RED)
    assert broker.engine.kept_bytes == 0


def test_a_message_excluded_by_a_filter_does_not_block_its_ordering_key() -> None:
    """The next message of the key is delivered as if it were the first."""
    broker = Broker(filter=RED, enable_message_ordering=True)
    broker.publish("1", key="k", color="red")
    broker.publish("2", key="k")
    broker.publish("3", key="k", color="red")
    consumer = broker.join()
    assert [got.data for got in consumer.take()] == ["1", "3"]


def test_a_message_excluded_by_a_filter_wakes_no_consumer() -> None:
    """A waiting consumer is woken only for a message that matches."""
    broker = Broker(filter=RED)
    consumer = broker.join()
    assert consumer.take() == []
    broker.publish("no")
    assert consumer.wakes == 0
    broker.publish("yes", color="red")
    assert consumer.wakes == 1


def test_a_seek_restores_only_messages_that_match_the_subscription_filter() -> None:
    """The rule holds for retained messages and for unacknowledged ones."""
    broker = broker_holding("no", filter=RED, retain_acked_messages=True)
    broker.publish("yes", color="red")
    broker.acknowledge(*broker.join().take())
    broker.seek(1)
    assert broker.join().take_data() == ["yes"]


@pytest.mark.parametrize("text", ["color", 'attributes.color = "red', "attributes:a AND"])
def test_a_subscription_with_an_invalid_filter_is_refused(broker: Broker, text: str) -> None:
    """The subscription is not created."""
    name = f"{PROJECT}/subscriptions/other"
    with pytest.raises(InvalidArgument, match="Invalid filter"):
        broker.engine.create_subscription(pubsub.Subscription(name=name, topic=TOPIC, filter=text))
    broker.engine.create_subscription(pubsub.Subscription(name=name, topic=TOPIC))


def test_a_subscription_filter_created_over_grpc_limits_the_pulled_messages(wire: Wire) -> None:
    """The test covers publish and pull."""
    wire.create(filter='hasPrefix(attributes.color, "r")')
    messages = [
        pubsub.PubsubMessage(data=color.encode(), attributes={"color": color})
        for color in ("red", "blue", "rose")
    ]
    wire.call("Publish", pubsub.PublishRequest(topic=TOPIC, messages=messages))
    assert data_of(wire.pull()) == ["red", "rose"]
