"""The load of prepared requests counts answered calls, and does not hide failed ones."""

from __future__ import annotations

import itertools

import pytest

from pullstream_emulator import Emulator
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import BY_METHOD
from tests.bench.http2_load import CallFailed, HttpTwoLoad

TOPIC = "projects/bench/topics/bench"
SUBSCRIPTION = "projects/bench/subscriptions/bench"
PATH = BY_METHOD["Publish"].path


def load_on(emulator: Emulator, size: int, batch: int, topic: str = TOPIC) -> HttpTwoLoad:
    messages = [pubsub.PubsubMessage(data=b"x" * size)] * batch
    request = pubsub.PublishRequest(topic=topic, messages=messages).SerializeToString()
    return HttpTwoLoad(emulator.endpoint, PATH, itertools.repeat(request), 8)


@pytest.mark.parametrize(("size", "batch"), [(1, 1), (100, 100), (100_000, 5)])
def test_every_prepared_request_is_answered_and_has_its_effect(size: int, batch: int) -> None:
    """The largest requests exceed the windows of HTTP/2, so they are sent in parts."""
    with Emulator() as emulator:
        emulator.inspect(lambda engine: engine.create_topic(pubsub.Topic(name=TOPIC)))
        config = pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC)
        emulator.inspect(lambda engine: engine.create_subscription(config))
        load = load_on(emulator, size, batch)
        load.run(lambda: load.done >= 20)
        assert load.done >= 20
        backlog = emulator.inspect(lambda engine: engine.backlog(SUBSCRIPTION))
        assert backlog == load.done * batch
        load.close()


def test_a_failed_call_ends_the_load_with_an_error() -> None:
    """A refused request would be fast, and the rate meaningless."""
    with Emulator() as emulator:
        load = load_on(emulator, 1, 1, topic=TOPIC + "-missing")
        with pytest.raises(CallFailed):
            load.run(lambda: False)
        load.close()
