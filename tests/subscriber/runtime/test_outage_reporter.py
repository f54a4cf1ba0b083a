"""Log lines about an unreachable server."""

from __future__ import annotations

import logging

import pytest

from pullstream.runtime.outage_reporter import REPORT_AFTER, OutageReporter
from pullstream_protocol.errors import Unavailable

LOG = logging.getLogger("pullstream.test_outage")
REFUSED = Unavailable("connection refused")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_lasting_server_outage_is_logged_once_with_its_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without it, a wrong port looks like a subscription without messages."""
    outage = OutageReporter(LOG)
    for now in (0.0, 1.0, REPORT_AFTER, 60.0):
        outage.failed(now, REFUSED)
    (told,) = warnings(caplog)
    assert "connection refused" in told


def test_a_short_server_outage_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Servers restart. Two short outages with success in between are not one long outage."""
    outage = OutageReporter(LOG)
    outage.failed(0.0, REFUSED)
    outage.failed(REPORT_AFTER - 0.1, REFUSED)
    outage.over()
    outage.failed(REPORT_AFTER, REFUSED)
    assert warnings(caplog) == []


def test_each_lasting_server_outage_is_logged_with_its_own_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A server that ends every stream with OK gives no error to name."""
    outage = OutageReporter(LOG)
    outage.failed(0.0, REFUSED)
    outage.failed(REPORT_AFTER, REFUSED)
    outage.over()
    outage.failed(100.0, None)
    outage.failed(100.0 + REPORT_AFTER, None)
    assert [text.partition("(")[2] for text in warnings(caplog)] == [
        "503 connection refused); retrying",
        "it ends every stream at once); retrying",
    ]
