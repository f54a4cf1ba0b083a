"""Fixtures for the tests of receivers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pullstream_emulator import Emulator
from tests.subscriber.spark.receiver_processes.world import World


@pytest.fixture
def world(broker: Emulator, spool: Path) -> Iterator[World]:
    one = World(broker, spool)
    yield one
    for running in one.running:
        running.end()
