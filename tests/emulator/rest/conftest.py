"""A broker that serves HTTP, on a manual clock, and its clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pullstream_emulator import Emulator
from pullstream_protocol.clock import ManualClock
from tests.emulator.v0_client import V0


@pytest.fixture
def emulator(clock: ManualClock) -> Iterator[Emulator]:
    with Emulator(clock=clock, rest=True) as emulator:
        yield emulator


@pytest.fixture
def v0(emulator: Emulator) -> V0:
    return V0(emulator.endpoint)
