"""An engine with one topic and one subscription."""

from __future__ import annotations

import pytest

from tests.emulator.broker import Broker


@pytest.fixture
def broker() -> Broker:
    return Broker()
