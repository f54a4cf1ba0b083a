"""Jobs that run at the same time as the session's thread."""

from __future__ import annotations

import threading

import pytest

from pullstream.spark.session.prefetch import Prefetcher, PrefetchMode
from tests.subscriber.streaming.fakes import TIMEOUT


def test_ending_the_spark_prefetcher_wakes_its_waiting_job_and_waits_until_the_job_ends() -> None:
    """`end` returns when the job has ended."""
    ahead, woken = Prefetcher(PrefetchMode.IN_BACKGROUND), threading.Event()
    seen: list[bool] = []

    def job() -> None:
        seen.append(ahead.is_over())
        assert woken.wait(TIMEOUT)
        seen.append(ahead.is_over())

    ahead.start(job)
    assert ahead.is_under_way
    ahead.end(woken.set)
    assert seen == [False, True]
    assert not ahead.is_under_way


def test_ending_the_spark_prefetcher_without_a_running_job_returns_at_once() -> None:
    """Nothing is woken."""
    Prefetcher(PrefetchMode.IN_BACKGROUND).end(pytest.fail)


def test_the_spark_prefetcher_in_mode_at_once_runs_its_job_on_the_calling_thread() -> None:
    """The job runs inside `start`, and does not wait for anything."""
    ahead = Prefetcher(PrefetchMode.AT_ONCE)
    seen: list[bool] = []
    ahead.start(lambda: seen.append(ahead.is_over()))
    assert seen == [True]


def test_the_spark_prefetcher_in_mode_off_never_prefetches() -> None:
    """The session does the work when it is needed."""
    Prefetcher(PrefetchMode.OFF).start(pytest.fail)


def test_the_spark_prefetcher_skips_its_job_if_no_thread_can_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The session does the work when it is needed."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    ahead = Prefetcher(PrefetchMode.IN_BACKGROUND)
    ahead.start(pytest.fail)
    ahead.end(pytest.fail)
