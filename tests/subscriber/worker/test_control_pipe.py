"""The control pipe between parent and child."""

from __future__ import annotations

import socket

import pytest

from pullstream.runtime.lifecycle import SubscriptionState
from pullstream.statistics import Latency, Statistics
from pullstream.worker.control_pipe import (
    CallbackLoaded,
    CallbackUnusable,
    ControlPipe,
    Report,
    StatisticsReport,
    SubscriptionFailed,
)
from pullstream.worker.job import Job

REPORT = StatisticsReport.from_statistics(
    Statistics(
        state=SubscriptionState.STREAMING,
        since=1.0,
        acked=1,
        nacked=2,
        callback_errors=3,
        running=4,
        held=5,
        load=0.5,
        latency=Latency(p99=0.25),
    ),
    at=7.0,
)


@pytest.mark.parametrize(
    "report",
    [
        REPORT,
        CallbackLoaded(["/app"]),
        CallbackUnusable("no such thing"),
        SubscriptionFailed("NOT_FOUND: größe"),
    ],
)
def test_the_control_pipe_of_a_worker_process_delivers_reports_until_the_pipe_is_closed(
    report: Report,
) -> None:
    """Reports arrive until the pipe ends."""
    one, other = ControlPipe.pair()
    assert one.send_report(report)
    one.end_writing()
    assert list(other.reports()) == [report]
    one.close()
    other.close()


def test_reports_of_a_worker_process_have_the_fields_of_the_subscription_statistics() -> None:
    """The state is text."""
    report = StatisticsReport(7.0, "streaming", 1, 2, 3, 4, 5, 0.5, 0.25)
    assert report == REPORT


def test_a_control_pipe_of_a_worker_receives_reports_after_its_sending_side_was_closed() -> None:
    """A child that must stop can thus report the result."""
    parent, child = ControlPipe.pair()
    parent.end_writing()
    assert list(child.reports()) == []
    assert child.send_report(REPORT)
    child.close()
    assert list(parent.reports()) == [REPORT]
    parent.close()


def test_a_worker_process_that_sends_a_report_to_a_dead_parent_gets_no_error() -> None:
    """There is no error, so a child continues when its parent has died."""
    parent, child = ControlPipe.pair()
    parent.close()
    assert not child.send_report(REPORT)
    child.close()


def test_programs_started_by_a_worker_callback_do_not_inherit_the_control_pipe() -> None:
    """Otherwise a command that a callback runs would keep the pipe open. This end was inherited."""
    end, other = socket.socketpair()
    end.set_inheritable(True)
    pipe = ControlPipe(end)
    assert not end.get_inheritable()
    pipe.close()
    other.close()


def test_a_worker_process_receives_the_job_description_of_its_parent_unchanged() -> None:
    """The job is sent as JSON."""
    job = Job("app:handle", "projects/p/subscriptions/s", {"token": "t"}, 10, 1000, 50, 0.5, 29.0)
    assert Job.from_json(job.to_json()) == job
