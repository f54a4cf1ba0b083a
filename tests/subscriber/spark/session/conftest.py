"""Fixtures for the tests of a session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pullstream_emulator import Emulator
from tests.subscriber.spark.session.world import World, make_subscription


@pytest.fixture
def world(broker: Emulator, spool: Path) -> Iterator[World]:
    make_subscription(broker)
    one = World(broker, spool)
    yield one
    for session in one.sessions:
        session.close()
