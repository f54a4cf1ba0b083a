"""Fixtures of the channel tests: a broker with topics on a manual clock, and its subscribers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pullstream import ChannelSubscriber, SubscriberClient
from pullstream_emulator import Emulator
from pullstream_protocol import long_poll
from pullstream_protocol.clock import ManualClock

from .channel_peers import BareSubscriber, Recorder, create_topics


@pytest.fixture
def early_answers(monkeypatch: pytest.MonkeyPatch) -> float:
    """Let servers answer idle polls ten seconds before their deadline, and return this time.

    Their own margin may be too short on a machine that runs many tests at once.
    """
    monkeypatch.setattr(long_poll, "ANSWER_MARGIN", 10.0)
    monkeypatch.setattr(long_poll, "LARGEST_PART", 1.0)
    return 10.0


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
