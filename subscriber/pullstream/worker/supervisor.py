"""The parent: starts the processes, reads their reports, and applies the rules."""

from __future__ import annotations

import os
import queue
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from pullstream.runtime.stop_signals import handled_by
from pullstream_protocol.clock import SYSTEM_CLOCK
from pullstream_protocol.queue_wait import get_within

from .control_pipe import (
    CallbackLoaded,
    CallbackUnusable,
    Report,
    StatisticsReport,
    SubscriptionFailed,
)
from .job import Job
from .process import ChildProcess
from .scoreboard import Score, WorkerTotals, total
from .source_watch import SourceWatch
from .supervisor_rules import Action, Order, Phase, SupervisorRules

SHOW_SECONDS = 1.0
WATCH_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Row:
    """The present state of one process.

    Attributes:
        process: Number of the process, from 1.
        pid: Process id; None while the process does not run.
        state: State of its stream, or the phase of the process: starting, pausing, draining, ended.
        score: Its statistics.
    """

    process: int
    pid: int | None
    state: str
    score: Score


class View(Protocol):
    """The output of a supervisor. Only `printed` is called on other threads."""

    relays: bool
    """Whether the output of the processes goes to `printed`; if not, it goes to stderr."""

    def show(self, rows: Sequence[Row], total: Score) -> None:
        """Show the present statistics. Called once a second, and once at the end."""

    def remark(self, text: str) -> None:
        """Show a notable event."""

    def printed(self, text: str) -> None:
        """Show a line that a process has printed."""


class Supervisor:
    """Runs `processes` children until a signal ends them, or the rules give up.

    Args:
        job: The work of each child.
        view: Shows the statistics and events.
        processes: Number of children.
        shutdown_timeout: Seconds for callbacks to finish; then children are killed.
        reload: Restart the children when a source file changes, below the current folder or in the
            package of the callback.
    """

    def __init__(
        self,
        job: Job,
        view: View,
        *,
        processes: int,
        shutdown_timeout: float,
        reload: bool = False,
    ) -> None:
        self._job = job
        self._view = view
        self._shutdown_timeout = shutdown_timeout
        self._rules = SupervisorRules(processes, shutdown_timeout)
        self._children: dict[int, ChildProcess] = {}
        self._tallies = [WorkerTotals() for _ in range(processes)]
        self._watch = SourceWatch([os.getcwd()]) if reload else None
        # Signal handlers write here, which is safe for a SimpleQueue, and the children's threads.
        self._inbox: queue.SimpleQueue[Callable[[], list[Order]]] = queue.SimpleQueue()
        self._clock = SYSTEM_CLOCK
        self._view_failure: OSError | None = None

    @property
    def reason(self) -> str | None:
        """Why the supervisor gave up; None if it did not."""
        return self._rules.reason

    def run(self) -> int:
        """Start the processes, and return the exit code when all have ended.

        Must be called on the main thread, which gets the signals. SupervisorRules describes the
        exit codes.

        Raises:
            OSError: The view failed; the processes have been drained.
        """
        with handled_by(self._note_signal):
            try:
                self._supervise()
            finally:
                # No child is left, unless `_supervise` raised an exception.
                for child in self._children.values():
                    child.kill()
        if self._rules.cut_short and self._rules.reason is None:
            self._remark(
                f"{self._rules.cut_short} of the processes ended before their callbacks did; "
                "their messages will be redelivered"
            )
        if self._view_failure is not None:
            raise self._view_failure
        return self._rules.exit_code

    def _supervise(self) -> None:
        self._obey(self._rules.begin(self._now()))
        next_show = next_check = self._now()
        while not self._rules.is_over:
            now = self._now()
            self._obey(self._rules.advance(now))
            if now >= next_show:
                self._show()
                next_show = now + SHOW_SECONDS
            if self._watch is not None and now >= next_check:
                self._obey(self._check_sources(self._watch))
                next_check = now + WATCH_SECONDS
            dues = [next_show, self._rules.next_due, next_check if self._watch else None]
            try:
                due = min(due for due in dues if due is not None)
                self._obey(get_within(self._inbox, self._clock.timeout(due))())
            except queue.Empty:
                pass
        self._show()

    def _now(self) -> float:
        return self._clock.monotonic()

    # ---- orders --------------------------------------------------------------------------------

    def _obey(self, orders: Sequence[Order]) -> None:
        for verb, number in orders:
            if verb is Action.START:
                self._start(number)
            elif number in self._children:
                child = self._children[number]
                child.drain() if verb is Action.DRAIN else child.kill()

    def _start(self, number: int) -> None:
        try:
            # The lines that several processes print would otherwise be mixed up.
            label = f"[{number + 1}] " if len(self._tallies) > 1 else ""
            self._children[number] = ChildProcess(
                replace(self._job, label=label),
                reported=lambda report: self._inbox.put(partial(self._reported, number, report)),
                ended=lambda code: self._inbox.put(partial(self._ended, number, code)),
                printed=self._view.printed if self._view.relays else None,
                reloading=self._watch is not None,
            )
        except OSError as error:
            self._remark(f"process {number + 1} cannot be started: {error}")
            self._inbox.put(partial(self._ended, number, 1))

    # ---- events --------------------------------------------------------------------------------

    def _reported(self, number: int, report: Report) -> list[Order]:
        if isinstance(report, StatisticsReport):
            self._tallies[number].report(report)
        elif isinstance(report, CallbackLoaded):
            self._rules.loaded(number)
            if self._watch is not None:
                self._watch.add(report.sources)
        elif isinstance(report, SubscriptionFailed):
            return self._rules.failed(number, report.reason, self._now())
        elif isinstance(report, CallbackUnusable):
            orders = self._rules.unusable(number, report.reason, self._now())
            if not self._rules.is_stopping:
                self._remark(f"process {number + 1} cannot load the callback: {report.reason}")
            return orders
        return []

    def _ended(self, number: int, code: int) -> list[Order]:
        child = self._children.pop(number, None)
        self._tallies[number].ended()
        orders = self._rules.ended(number, code, self._now())
        due = self._rules.due(number)
        if self._rules.phase(number) is Phase.PAUSING and due is not None:
            self._remark(
                f"process {number + 1} (pid {child.pid if child else '-'}) {_how(code)}; "
                f"it restarts in {due - self._now():.1f} s"
            )
        return orders

    def _note_signal(self, number: int, frame: object) -> None:
        self._inbox.put(partial(self._signalled, number))

    def _signalled(self, number: int) -> list[Order]:
        orders = self._rules.stop(number, self._now())
        if any(verb is Action.DRAIN for verb, _ in orders):
            self._remark(
                f"stopping: callbacks have {self._shutdown_timeout:g} s to finish; "
                "a second signal ends them at once"
            )
        return orders

    def _check_sources(self, watch: SourceWatch) -> list[Order]:
        path = watch.changed()
        if path is None or self._rules.is_stopping:
            return []
        self._remark(f"{os.path.relpath(path)} has changed, reloading")
        return self._rules.reload(self._now())

    # ---- showing -------------------------------------------------------------------------------

    def rows(self) -> list[Row]:
        """Return the present state of each process."""
        return [self._row(number) for number in range(len(self._tallies))]

    def _row(self, number: int) -> Row:
        phase, tally = self._rules.phase(number), self._tallies[number]
        child = self._children.get(number)
        state = tally.state if phase is Phase.RUNNING else None
        return Row(
            process=number + 1,
            pid=None if child is None else child.pid,
            state=state or (Phase.STARTING if phase is Phase.RUNNING else phase).value,
            score=tally.score(self._rules.restarts(number)),
        )

    def _show(self) -> None:
        rows = self.rows()
        self._try(lambda: self._view.show(rows, total([row.score for row in rows])))

    def _remark(self, text: str) -> None:
        self._try(lambda: self._view.remark(text))

    def _try(self, output: Callable[[], None]) -> None:
        """Show something. If the output is closed (`| head`), stop the processes."""
        try:
            output()
        except OSError as error:
            if self._view_failure is None:
                self._view_failure = error
                self._inbox.put(lambda: self._rules.stop(signal.SIGTERM, self._now()))


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
