"""The clock of receivers and coordinators."""

from __future__ import annotations

import time

import pytest

from pullstream.spark.protocol.elapsed import elapsed


def test_the_clock_of_a_receiver_is_not_the_clock_that_somebody_sets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = elapsed()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    assert before <= elapsed() < before + 60
