"""What is said of a server that is out of reach."""

from __future__ import annotations

import logging

import pytest

from protocol.errors import Unavailable
from subscriber.outage import TOLD_AFTER, Outage

LOG = logging.getLogger("pullstream.test_outage")
REFUSED = Unavailable("connection refused")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_an_outage_that_lasts_is_told_once_with_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise a wrong port looks like a subscription without messages."""
    outage = Outage(LOG)
    for now in (0.0, 1.0, TOLD_AFTER, 60.0):
        outage.failed(now, REFUSED)
    (told,) = warnings(caplog)
    assert "connection refused" in told


def test_a_short_one_is_nobodys_business(caplog: pytest.LogCaptureFixture) -> None:
    """Servers restart. Between two short ones it did work: they are not one long outage."""
    outage = Outage(LOG)
    outage.failed(0.0, REFUSED)
    outage.failed(TOLD_AFTER - 0.1, REFUSED)
    outage.over()
    outage.failed(TOLD_AFTER, REFUSED)
    assert warnings(caplog) == []


def test_the_next_outage_is_told_again(caplog: pytest.LogCaptureFixture) -> None:
    """With its own length; a server that ends every stream with OK gives no error to name."""
    outage = Outage(LOG)
    outage.failed(0.0, REFUSED)
    outage.failed(TOLD_AFTER, REFUSED)
    outage.over()
    outage.failed(100.0, None)
    outage.failed(100.0 + TOLD_AFTER, None)
    assert [text.partition("(")[2] for text in warnings(caplog)] == [
        "503 connection refused): trying on",
        "it ends every stream at once): trying on",
    ]
