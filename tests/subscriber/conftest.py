"""Fixtures: the installed package's own from the source tree, brokers, unwatched pools."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pullstream import SubscriberClient
from pullstream.scheduling import worker_pool
from pullstream_emulator import Emulator
from pullstream_emulator.pytest_plugin import pubsub_emulator as pubsub_emulator
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.fetching import NAME, TOPIC
from tests.subscriber.pools import Watched


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator() as emulator:
        yield emulator


@pytest.fixture
def broker() -> Iterator[Emulator]:
    """Yield a broker with the topic and the subscription of fetching.py."""
    with Emulator() as emulator, SubscriberClient(endpoint=emulator.endpoint) as client:
        emulator.inspect(lambda engine: engine.create_topic(pubsub.Topic(name=TOPIC)))
        client.create_subscription(name=NAME, topic=TOPIC)
        yield emulator


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Replace the stall monitor, so that only the test checks pools."""
    watch = Watched()
    monkeypatch.setattr(worker_pool, "STALL_MONITOR", watch)
    return watch
