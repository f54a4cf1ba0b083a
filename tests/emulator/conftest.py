"""A running broker on a manual clock, and a low-level client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.engine import Engine
from pullstream_emulator.faults import Faults
from pullstream_emulator.pytest_plugin import pubsub_emulator as pubsub_emulator
from pullstream_protocol.clock import ManualClock
from tests.emulator.broker import new_engine
from tests.emulator.rest_client import RestClient
from tests.emulator.wire import Wire


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine(clock: ManualClock) -> Engine:
    return new_engine(clock)


@pytest.fixture
def emulator(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[Emulator]:
    """Yield a broker with the settings of the mark `emulator`."""
    mark = request.node.get_closest_marker("emulator")
    with Emulator(**{"clock": clock, **(mark.kwargs if mark else {})}) as emulator:
        yield emulator


@pytest.fixture
def rest(emulator: Emulator) -> RestClient:
    """Return a client of a broker that serves HTTP."""
    return RestClient(emulator.endpoint)


@pytest.fixture
def faults(request: pytest.FixtureRequest, emulator: Emulator, wire: Wire) -> Iterator[Faults]:
    """Yield the faults of a broker with a topic and the subscription of a mark."""
    mark = request.node.get_closest_marker("subscription")
    wire.create(**(mark.kwargs if mark else {}))
    yield emulator.faults
    emulator.faults.clear()


@pytest.fixture
def wire(emulator: Emulator) -> Iterator[Wire]:
    with Wire(emulator.endpoint) as wire:
        yield wire
