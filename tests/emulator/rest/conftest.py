"""A broker that serves HTTP, and its client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pullstream_emulator import Emulator
from tests.emulator.rest_client import RestClient


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator(rest=True) as emulator:
        yield emulator


@pytest.fixture
def rest(emulator: Emulator) -> RestClient:
    return RestClient(emulator.endpoint)
