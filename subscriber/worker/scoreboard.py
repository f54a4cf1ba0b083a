"""What all processes have done, put together from what each of them tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .line import Figures

# Seconds.
_SHORTEST_MEASURE = 0.5


@dataclass(frozen=True, slots=True)
class Score:
    """The figures of one process with its restarts, or of all.

    rate: messages acknowledged a second, between the last two reports.
    acked, nacked, errors: since the beginning, over all restarts. A process that crashed takes up
        to a second's worth with it.
    running, held, load, p99: as they are now; see `Statistics`. Of all processes: sums, and the
        highest load and p99.
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


class Tally:
    """The figures of one process, through its restarts."""

    def __init__(self) -> None:
        self._last: Figures | None = None
        self._rate = 0.0
        # Acked, nacked and errors of the processes before this one.
        self._before = (0, 0, 0)

    @property
    def state(self) -> str | None:
        """That of the stream; None until the process has told."""
        return None if self._last is None else self._last.state

    def report(self, figures: Figures) -> None:
        """The process told its figures."""
        last, self._last = self._last, figures
        # The last report follows closely on the one before, which makes it a poor measure.
        if last is not None and figures.at - last.at >= _SHORTEST_MEASURE:
            self._rate = (figures.acked - last.acked) / (figures.at - last.at)

    def ended(self) -> None:
        """The process is gone: the next one counts from zero."""
        score = self.score(restarts=0)
        self._before = (score.acked, score.nacked, score.errors)
        self._last = None
        self._rate = 0.0

    def score(self, restarts: int) -> Score:
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
    """Of all processes together."""
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
