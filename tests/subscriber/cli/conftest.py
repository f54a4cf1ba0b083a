"""A broker with HTTP and a clock that the test moves, which the commands find."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pullstream_emulator import Emulator
from pullstream_protocol.clock import ManualClock
from tests.subscriber.cli.billing import billing as billing


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000)


@pytest.fixture
def emulator(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """Yield a broker whose endpoint is in the environment."""
    with Emulator(clock=clock, rest=True) as emulator:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", emulator.endpoint)
        yield emulator


@pytest.fixture
def broker(pubsub_emulator: Emulator) -> Emulator:
    """Return a broker without HTTP, whose endpoint is in the environment."""
    return pubsub_emulator
