"""Rules of the supervisor: restarts, pauses, giving up, and the exit code.

This module has no process, thread or clock. It takes events with their times, and returns orders.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from enum import Enum

from pullstream.runtime.retry_clock import Backoff

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
# After a process has run this many seconds, a crash counts as the first one: the pause after it is
# the shortest.
STEADY_SECONDS = LONGEST_PAUSE


class Phase(Enum):
    """The phase of a process."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSING = "pausing"
    DRAINING = "draining"
    ENDED = "ended"


_ALIVE = frozenset({Phase.STARTING, Phase.RUNNING, Phase.DRAINING})


class Action(Enum):
    """An action of the supervisor on a process."""

    START = "start"
    DRAIN = "drain"
    KILL = "kill"


# An action, and the number of the process, counting from 0.
Order = tuple[Action, int]


class _Slot:
    """One of the processes, over all its restarts."""

    def __init__(self, backoff: Backoff) -> None:
        self.backoff = backoff
        self.phase = Phase.ENDED
        self.started = 0.0
        # End of the pause, or of the time for draining.
        self.due: float | None = None
        self.restarts = 0


class SupervisorRules:
    """Keeps `processes` processes running until it is stopped, or until a permanent failure.

    - A process that ends without an order is restarted after a pause, with any exit code. The pause
      is 0.5 s at first and doubles up to 30 s, with jitter. After the process has run for 30 s, the
      next pause is 0.5 s again.
    - If the callback cannot be loaded and was never loaded, all processes stop with exit code 2.
      If it was loaded before, this counts as a crash: a database may be unreachable, or an edit
      unfinished.
    - If the subscription fails permanently in one process, all processes stop with exit code 1.
    - On the first order to stop, processes drain. A process that has not ended after
      `shutdown_timeout` seconds is killed. On the second order, all are killed immediately.
    - A reload drains the processes, and restarts each one as soon as it has ended.

    Methods take the time in seconds of a monotonic clock, and return the orders for now.

    Args:
        processes: Number of processes.
        shutdown_timeout: Seconds for draining.
        new_backoff: Creates the pauses of one process.

    Attributes:
        reason: Why the rules gave up; None if they did not.
        cut_short: Number of processes that were ordered to stop and did not finish in time.
        is_stopping: Whether processes stop for good, on an order or after a permanent failure.
    """

    def __init__(
        self,
        processes: int,
        shutdown_timeout: float,
        *,
        new_backoff: Callable[[], Backoff] = lambda: Backoff(FIRST_PAUSE, LONGEST_PAUSE),
    ) -> None:
        self._slots = [_Slot(new_backoff()) for _ in range(processes)]
        self._shutdown_timeout = shutdown_timeout
        self._was_loaded = False
        self.is_stopping = False
        # The first signal that ordered a stop; None if there was none.
        self._signal: int | None = None
        self.cut_short = 0
        self._given_up: int | None = None
        self.reason: str | None = None

    # ---- state ---------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether all processes have ended, and none will be started."""
        return all(slot.phase is Phase.ENDED for slot in self._slots)

    @property
    def exit_code(self) -> int:
        """The exit code of the command.

        0: stopped by SIGTERM, and all processes ended in time. 1: some did not end in time, or the
        subscription failed. 2: the callback cannot be loaded. 128 plus the signal number: stopped
        by Ctrl-C, or by a second signal.
        """
        if self._given_up is not None:
            return self._given_up
        if self._signal == signal.SIGTERM:
            return 1 if self.cut_short else 0
        return 0 if self._signal is None else 128 + self._signal

    @property
    def next_due(self) -> float | None:
        """Time of the next call of `advance`; None if none is needed."""
        return min((slot.due for slot in self._slots if slot.due is not None), default=None)

    def phase(self, number: int) -> Phase:
        """Return the phase of a process; processes are numbered from 0."""
        return self._slots[number].phase

    def due(self, number: int) -> float | None:
        """Return when a pausing process starts, or when a draining process is killed."""
        return self._slots[number].due

    def restarts(self, number: int) -> int:
        """Return how often a process was restarted, reloads not counted."""
        return self._slots[number].restarts

    # ---- events --------------------------------------------------------------------------------

    def begin(self, now: float) -> list[Order]:
        """Start all processes."""
        return [self._start(number, now) for number in range(len(self._slots))]

    def loaded(self, number: int) -> None:
        """Record that a process has loaded the callback."""
        self._was_loaded = True
        slot = self._slots[number]
        if slot.phase is Phase.STARTING:
            slot.phase = Phase.RUNNING

    def unusable(self, number: int, reason: str, now: float) -> list[Order]:
        """Record that a process could not load the callback; the process will end."""
        return [] if self._was_loaded else self._give_up(2, reason, now)

    def failed(self, number: int, reason: str, now: float) -> list[Order]:
        """Record that the subscription of a process failed permanently; the process will end."""
        return self._give_up(1, reason, now)

    def ended(self, number: int, code: int, now: float) -> list[Order]:
        """Record the end of a process. A negative exit code is the signal that killed it."""
        slot = self._slots[number]
        was_draining = slot.phase is Phase.DRAINING
        slot.due = None
        if self.is_stopping:
            slot.phase = Phase.ENDED
            self.cut_short += was_draining and code != 0
            return []
        if was_draining:
            return [self._start(number, now)]
        if now - slot.started >= STEADY_SECONDS:
            slot.backoff.reset()
        slot.phase = Phase.PAUSING
        slot.due = now + slot.backoff.next_pause()
        return []

    def reload(self, now: float) -> list[Order]:
        """Restart the processes, because the code of the callback has changed."""
        orders = self._drain(now)
        for number, slot in enumerate(self._slots):
            if slot.phase is Phase.PAUSING:
                slot.backoff.reset()
                orders.append(self._start(number, now))
        return orders

    def stop(self, number: int, now: float) -> list[Order]:
        """Handle a signal to stop. The second signal kills all processes immediately."""
        if self._signal is not None:
            self._given_up = 128 + number
            return self._kill(range(len(self._slots)))
        self._signal = number
        return self._begin_stopping(now)

    def advance(self, now: float) -> list[Order]:
        """End the pauses and the draining that are due."""
        due = [
            number
            for number, slot in enumerate(self._slots)
            if slot.due is not None and slot.due <= now
        ]
        orders = self._kill(due)
        for number in due:
            slot = self._slots[number]
            slot.due = None
            if slot.phase is Phase.PAUSING:
                slot.restarts += 1
                orders.append(self._start(number, now))
        return orders

    # ---- rules ---------------------------------------------------------------------------------

    def _start(self, number: int, now: float) -> Order:
        slot = self._slots[number]
        slot.phase, slot.started, slot.due = Phase.STARTING, now, None
        return (Action.START, number)

    def _drain(self, now: float) -> list[Order]:
        orders = []
        for number, slot in enumerate(self._slots):
            if slot.phase in (Phase.STARTING, Phase.RUNNING):
                slot.phase, slot.due = Phase.DRAINING, now + self._shutdown_timeout
                orders.append((Action.DRAIN, number))
        return orders

    def _kill(self, numbers: Sequence[int]) -> list[Order]:
        return [(Action.KILL, number) for number in numbers if self._slots[number].phase in _ALIVE]

    def _begin_stopping(self, now: float) -> list[Order]:
        if self.is_stopping:
            return []
        self.is_stopping = True
        orders = self._drain(now)
        for slot in self._slots:
            if slot.phase is Phase.PAUSING:
                slot.phase, slot.due = Phase.ENDED, None
        return orders

    def _give_up(self, code: int, reason: str, now: float) -> list[Order]:
        if not self.is_stopping:
            self._given_up, self.reason = code, reason
        return self._begin_stopping(now)
