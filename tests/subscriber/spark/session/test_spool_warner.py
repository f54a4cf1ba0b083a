"""Warnings about messages that a spool leaves out, or may not leave out."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from pullstream.spark.protocol.coordinator import Counts
from pullstream.spark.session.spool_warner import SpoolWarner


@pytest.fixture
def coordinator() -> MagicMock:
    """Return a coordinator that has planned nothing and forgotten nothing."""
    made = MagicMock(counts=Counts())
    made.known_ids.forgotten_early = 0
    made.known_ids.oldest_age = 100.0
    made.known_ids.__len__.return_value = 7
    return made


def test_many_messages_that_were_committed_long_ago_are_reported_once(
    coordinator: MagicMock, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody has sought the subscription back. A tenth may be late redeliveries."""
    warner = SpoolWarner(1000.0)
    coordinator.counts = Counts(rows=90, left_out=10, long_committed=10)
    warner.look(coordinator)
    assert caplog.text == ""
    coordinator.counts = Counts(rows=98, left_out=12, long_committed=12)
    for _ in range(2):
        warner.look(coordinator)
    coordinator.counts = Counts(rows=98, left_out=112, long_committed=112)
    warner.look(coordinator)
    (record,) = caplog.records
    assert record.message.startswith("2 of 10 messages were committed at least 10 minutes ago")


def test_ids_that_a_spool_has_forgotten_too_early_are_reported_once(
    coordinator: MagicMock, caplog: pytest.LogCaptureFixture
) -> None:
    warner = SpoolWarner(1000.0)
    warner.look(coordinator)
    assert caplog.text == ""
    coordinator.known_ids.forgotten_early = 3
    for _ in range(2):
        warner.look(coordinator)
    (record,) = caplog.records
    assert "7 committed messages, of the last 100 seconds instead of 1000" in record.message
    assert "dedupMessages" in record.message
