"""pytest fixture `pubsub_emulator`, there for every project that has pullstream installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .testing import Emulator


@pytest.fixture
def pubsub_emulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """A fresh, empty broker for one test.

    PUBSUB_EMULATOR_HOST points at it meanwhile, so pullstream's and Google's clients find it by
    themselves; PUBSUB_PROJECT_ID is `test-project`.
    """
    # Imported late: a test session that does not use the fixture should not pay for gRPC.
    from .testing import Emulator

    with Emulator() as emulator:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", emulator.endpoint)
        monkeypatch.setenv("PUBSUB_PROJECT_ID", "test-project")
        yield emulator
