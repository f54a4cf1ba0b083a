"""The control pipe between parent and child."""

from __future__ import annotations

import socket

import pytest

from pullstream.runtime.lifecycle import SubscriptionState
from pullstream.statistics import Latency, Statistics
from pullstream.worker.control_pipe import ControlPipe, Failed, Figures, Loaded, News, Unusable
from pullstream.worker.job import Job

FIGURES = Figures.from_statistics(
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
    "news", [FIGURES, Loaded(["/app"]), Unusable("no such thing"), Failed("NOT_FOUND: größe")]
)
def test_what_is_reported_at_one_end_is_heard_at_the_other(news: News) -> None:
    """News arrive until the pipe ends."""
    one, other = ControlPipe.pair()
    assert one.tell(news)
    one.end_writing()
    assert list(other.news()) == [news]
    one.close()
    other.close()


def test_figures_are_those_of_the_statistics() -> None:
    """The state is text."""
    told = Figures(7.0, "streaming", 1, 2, 3, 4, 5, 0.5, 0.25)
    assert told == FIGURES


def test_an_end_that_tells_no_more_still_hears() -> None:
    """A child that must stop can thus report the result."""
    parent, child = ControlPipe.pair()
    parent.end_writing()
    assert list(child.news()) == []
    assert child.tell(FIGURES)
    child.close()
    assert list(parent.news()) == [FIGURES]
    parent.close()


def test_telling_nobody_has_no_effect() -> None:
    """There is no error, so a child continues when its parent has died."""
    parent, child = ControlPipe.pair()
    parent.close()
    assert not child.tell(FIGURES)
    child.close()


def test_an_end_is_not_inherited() -> None:
    """Otherwise a command that a callback runs would keep the pipe open. This end was inherited."""
    end, other = socket.socketpair()
    end.set_inheritable(True)
    line = ControlPipe(end)
    assert not end.get_inheritable()
    line.close()
    other.close()


def test_a_job_survives_the_way_to_the_child() -> None:
    """The job is sent as JSON."""
    job = Job("app:handle", "projects/p/subscriptions/s", {"token": "t"}, 10, 1000, 50, 0.5, 29.0)
    assert Job.from_json(job.to_json()) == job
