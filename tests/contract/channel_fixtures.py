"""A broker with topics on a clock that the test moves, and subscribers of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from emulator import Emulator
from protocol.clock import ManualClock
from subscriber import ChannelSubscriber, SubscriberClient

from .channel_peers import BareSubscriber, Recorder, create_topics


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def broker(clock: ManualClock, recorder: Recorder) -> Iterator[Emulator]:
    with Emulator(clock=clock, interceptors=[recorder]) as emulator:
        create_topics(emulator)
        yield emulator


@pytest.fixture
def bare(broker: Emulator) -> Iterator[BareSubscriber]:
    bare = BareSubscriber(broker.endpoint)
    yield bare
    bare.close()


@pytest.fixture
def client(broker: Emulator) -> Iterator[SubscriberClient]:
    with SubscriberClient(endpoint=broker.endpoint) as client:
        yield client


@pytest.fixture
def listener(client: SubscriberClient) -> ChannelSubscriber:
    return client.listen()
