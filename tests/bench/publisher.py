"""Makes the topic and its subscriptions on a broker, and publishes by bare grpc.

    python -m tests.bench.publisher localhost:PORT --messages 100000
    python -m tests.bench.publisher localhost:PORT --per-second 100

The first publishes in batches, and ends. The second publishes single messages, or small batches,
until it is ended, with the time of sending as data.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import grpc

from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import BY_METHOD

from .client import SUBSCRIPTION
from .peers import TIMESTAMP

TOPIC = "projects/bench/topics/bench"
BATCH = 100
READY = "ready"


class Broker:
    """The necessary calls on one channel."""

    def __init__(self, endpoint: str) -> None:
        self._channel = grpc.insecure_channel(endpoint)
        self.create_topic = self._stub("CreateTopic")
        self.create_subscription = self._stub("CreateSubscription")
        self.delete_subscription = self._stub("DeleteSubscription")
        self.publish = self._stub("Publish")

    def _stub(self, method: str) -> grpc.UnaryUnaryMultiCallable[Any, Any]:
        # Any, because a table of calls cannot have the types of each.
        rpc: Any = BY_METHOD[method]
        stub: grpc.UnaryUnaryMultiCallable[Any, Any] = self._channel.unary_unary(
            rpc.path,
            request_serializer=rpc.request.SerializeToString,
            response_deserializer=rpc.response.FromString,
        )
        return stub


def publish_batches(broker: Broker, messages: int, size: int, attributes: int) -> None:
    named = {f"name-{number}": f"value-{number}" for number in range(attributes)}
    one = pubsub.PubsubMessage(data=b"x" * size, attributes=named)
    for sent in range(0, messages, BATCH):
        batch = [one] * min(BATCH, messages - sent)
        broker.publish(pubsub.PublishRequest(topic=TOPIC, messages=batch))


def publish_evenly(broker: Broker, per_second: float, batch: int) -> None:
    due = time.monotonic()
    while True:
        data = TIMESTAMP.pack(time.time())
        broker.publish(
            pubsub.PublishRequest(topic=TOPIC, messages=[pubsub.PubsubMessage(data=data)] * batch)
        )
        due += batch / per_second
        time.sleep(max(0.0, due - time.monotonic()))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("endpoint")
    parser.add_argument("--subscriptions", type=int, default=1)
    parser.add_argument("--messages", type=int, default=0, help="publish so many, and end")
    parser.add_argument("--size", type=int, default=100, help="bytes of data in each of those")
    parser.add_argument("--attributes", type=int, default=0, help="of each of those")
    parser.add_argument("--per-second", type=float, default=0.0, help="publish at this pace")
    parser.add_argument("--batch", type=int, default=1, help="messages of a request at this pace")
    arguments = parser.parse_args()
    broker = Broker(arguments.endpoint)
    broker.create_topic(pubsub.Topic(name=TOPIC))
    for number in range(arguments.subscriptions):
        name = SUBSCRIPTION.format(number)
        broker.create_subscription(
            pubsub.Subscription(name=name, topic=TOPIC, ack_deadline_seconds=600)
        )
    publish_batches(broker, arguments.messages, arguments.size, arguments.attributes)
    print(READY, flush=True)
    if arguments.per_second:
        publish_evenly(broker, arguments.per_second, arguments.batch)


if __name__ == "__main__":
    main()
