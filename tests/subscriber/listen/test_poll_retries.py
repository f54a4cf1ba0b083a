"""Retries of a listener's calls: pauses, outages, and the decision to give up."""

from __future__ import annotations

from typing import Any

import pytest

from pullstream.listen.session import PollRetries
from pullstream.streaming.stream import PROVEN_AFTER
from pullstream_protocol.errors import DeadlineExceeded, PermissionDenied, RpcError, Unavailable


class RecordingOutage:
    """Records the calls of an OutageReporter."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def failed(self, now: float, error: RpcError) -> None:
        self.calls.append("failed")

    def over(self) -> None:
        self.calls.append("over")


@pytest.fixture
def outage() -> Any:
    return RecordingOutage()


def test_the_retry_pauses_of_a_listener_grow_until_its_time_limit_for_retries(outage: Any) -> None:
    """The time counts from the first failure in a row."""
    retries = PollRetries(10.0, outage)
    now, pauses = 0.0, []
    while True:
        retries.begin(now)
        due = retries.failed(Unavailable("away"), now)
        if due is None:
            break
        pauses.append(due - now)
        now = due
    assert now == pytest.approx(10.0)
    assert max(pauses[1:-1]) > pauses[0]
    assert set(outage.calls) == {"failed"}


def test_a_successful_call_of_a_listener_resets_its_retry_pause(outage: Any) -> None:
    """The success also ends the outage."""
    retries = PollRetries(1.0, outage)
    assert retries.failed(Unavailable("away"), 0.0) is not None
    retries.succeeded()
    retries.begin(100.0)
    assert retries.failed(Unavailable("away"), 100.0) is not None
    assert outage.calls == ["failed", "over", "failed"]


def test_a_call_of_a_listener_that_fails_with_a_permanent_error_is_not_retried(outage: Any) -> None:
    """Another attempt would have the same result."""
    assert PollRetries(None, outage).failed(PermissionDenied("no"), 0.0) is None


@pytest.mark.parametrize(
    ("error", "gives_up"), [(Unavailable("cut"), False), (DeadlineExceeded("late"), True)]
)
def test_a_connection_loss_after_a_long_listener_poll_restarts_the_retry_time_limit(
    outage: Any, error: RpcError, gives_up: bool
) -> None:
    """A deadline that is exceeded proves nothing, because a server answers before it."""
    retries = PollRetries(PROVEN_AFTER, outage)
    assert retries.failed(Unavailable("away"), 0.0) is not None
    retries.begin(1.0)
    assert (retries.failed(error, 1.0 + PROVEN_AFTER) is None) is gives_up
