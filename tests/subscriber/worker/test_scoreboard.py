"""Statistics of processes, across restarts and in total."""

from __future__ import annotations

from dataclasses import replace

from pullstream.worker.control_pipe import StatisticsReport
from pullstream.worker.scoreboard import Score, WorkerTotals, total

REPORT = StatisticsReport(
    at=10.0,
    state="streaming",
    acked=100,
    nacked=5,
    errors=2,
    running=3,
    held=1,
    load=0.5,
    p99=0.25,
)


def test_the_statistics_of_a_worker_process_that_has_sent_no_report_are_zero() -> None:
    """The process has no state either."""
    tally = WorkerTotals()
    assert (tally.state, tally.score(restarts=0)) == (None, Score())


def test_the_statistics_of_a_worker_process_are_those_of_its_last_report() -> None:
    """The parent adds the number of restarts."""
    tally = WorkerTotals()
    tally.report(replace(REPORT, acked=1))
    tally.report(replace(REPORT, at=10.1))
    assert tally.state == "streaming"
    assert tally.score(restarts=4) == Score(
        acked=100, nacked=5, errors=2, running=3, held=1, load=0.5, p99=0.25, restarts=4
    )


def test_the_message_rate_of_a_worker_process_is_computed_between_two_reports() -> None:
    """A report too soon after another, as the last one may be, does not change the rate."""
    tally = WorkerTotals()
    tally.report(REPORT)
    tally.report(replace(REPORT, at=12.0, acked=150))
    assert tally.score(restarts=0).rate == 25.0
    tally.report(replace(REPORT, at=12.1, acked=151))
    assert tally.score(restarts=0).rate == 25.0


def test_the_counts_of_a_restarted_worker_process_include_those_before_the_restart() -> None:
    """The gauges of the ended process do not count."""
    tally = WorkerTotals()
    tally.report(REPORT)
    tally.report(replace(REPORT, at=11.0, acked=200))
    tally.ended()
    assert tally.score(restarts=1) == Score(acked=200, nacked=5, errors=2, restarts=1)
    tally.report(replace(REPORT, at=3.0, acked=7))
    score = tally.score(restarts=1)
    assert (score.rate, score.acked, score.nacked, score.errors) == (0.0, 207, 10, 4)


def test_the_message_counts_of_a_worker_are_the_sums_over_all_its_processes() -> None:
    """Load and p99 are those of the worst process."""
    one = Score(1.5, 10, 1, 2, 3, 4, load=0.5, p99=0.1, restarts=1)
    other = Score(2.0, 20, 2, 0, 1, 0, load=0.2, p99=0.3, restarts=0)
    assert total([one, other]) == Score(3.5, 30, 3, 2, 4, 4, load=0.5, p99=0.3, restarts=1)
    assert total([]) == Score()
