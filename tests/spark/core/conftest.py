"""What the tests of a session begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator import Emulator
from tests.spark.core.world import World, make_subscription


@pytest.fixture
def world(broker: Emulator, spool: Path) -> Iterator[World]:
    make_subscription(broker)
    one = World(broker, spool)
    yield one
    for session in one.sessions:
        session.close()
