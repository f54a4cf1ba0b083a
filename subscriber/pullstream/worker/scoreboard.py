"""Statistics of all processes, computed from the reports of each process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .control_pipe import StatisticsReport

# Shortest time between two reports from which a rate is computed, in seconds.
_SHORTEST_MEASURE = 0.5


@dataclass(frozen=True, slots=True)
class Score:
    """The statistics of one process with its restarts, or of all processes.

    `acked`, `nacked` and `errors` count from the beginning, over all restarts. When a process
    crashes, up to one second of its counts is lost. `running`, `held`, `load` and `p99` are present
    values; see `Statistics`. For all processes, each value is a sum, except for `load` and `p99`,
    which are maxima.

    Attributes:
        rate: Messages acknowledged per second, between the last two reports.
        acked: Messages acked.
        nacked: Messages nacked.
        errors: Callbacks that raised an exception.
        running: Messages in a callback.
        held: Messages that wait behind another one of their ordering key.
        load: The fuller limit of flow control.
        p99: 99th percentile in seconds, from the receipt of a message to its acknowledgement.
        restarts: Number of restarts, reloads not counted.
    """

    rate: float = 0.0
    acked: int = 0
    nacked: int = 0
    errors: int = 0
    running: int = 0
    held: int = 0
    load: float = 0.0
    p99: float = 0.0
    restarts: int = 0


class WorkerTotals:
    """The statistics of one process, over all its restarts."""

    def __init__(self) -> None:
        self._last: StatisticsReport | None = None
        self._rate = 0.0
        # Acked, nacked and errors of the previous processes in this slot.
        self._before = (0, 0, 0)

    @property
    def state(self) -> str | None:
        """State of the stream; None before the first report of the process."""
        return None if self._last is None else self._last.state

    def report(self, report: StatisticsReport) -> None:
        """Record a report of the process."""
        last, self._last = self._last, report
        # The final report of a process follows the previous one closely, which gives a poor rate.
        if last is not None and report.at - last.at >= _SHORTEST_MEASURE:
            self._rate = (report.acked - last.acked) / (report.at - last.at)

    def ended(self) -> None:
        """Record the end of the process. The next one counts from zero."""
        score = self.score(restarts=0)
        self._before = (score.acked, score.nacked, score.errors)
        self._last = None
        self._rate = 0.0

    def score(self, restarts: int) -> Score:
        """Return the counts over all restarts; the other values are of the present process."""
        acked, nacked, errors = self._before
        last = self._last
        if last is None:
            return Score(acked=acked, nacked=nacked, errors=errors, restarts=restarts)
        return Score(
            rate=self._rate,
            acked=acked + last.acked,
            nacked=nacked + last.nacked,
            errors=errors + last.errors,
            running=last.running,
            held=last.held,
            load=last.load,
            p99=last.p99,
            restarts=restarts,
        )


def total(scores: Sequence[Score]) -> Score:
    """Return the statistics of all processes together."""
    return Score(
        rate=sum(score.rate for score in scores),
        acked=sum(score.acked for score in scores),
        nacked=sum(score.nacked for score in scores),
        errors=sum(score.errors for score in scores),
        running=sum(score.running for score in scores),
        held=sum(score.held for score in scores),
        load=max((score.load for score in scores), default=0.0),
        p99=max((score.p99 for score in scores), default=0.0),
        restarts=sum(score.restarts for score in scores),
    )
