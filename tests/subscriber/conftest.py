"""The fixture that users get from the installed package, here from the source tree; a broker; pools
without their watch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from emulator import Emulator
from emulator.pytest_plugin import pubsub_emulator as pubsub_emulator
from protocol.messages import pubsub_pb2 as pubsub
from subscriber import SubscriberClient, worker_pool
from tests.subscriber.fetching import NAME, TOPIC
from tests.subscriber.pools import Watched


@pytest.fixture
def broker() -> Iterator[Emulator]:
    """With the topic and the subscription of fetching.py."""
    with Emulator() as emulator, SubscriberClient(endpoint=emulator.endpoint) as client:
        emulator.inspect(lambda engine: engine.create_topic(pubsub.Topic(name=TOPIC)))
        client.create_subscription(name=NAME, topic=TOPIC)
        yield emulator


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Pools are looked at by the test only."""
    watch = Watched()
    monkeypatch.setattr(worker_pool, "WATCH", watch)
    return watch
