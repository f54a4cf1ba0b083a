"""The rules of supervision: when to restart, pause and give up, and what the exit code is.

No process, thread or clock in here: events go in with the time, orders come out.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from enum import Enum

from subscriber.streaming.backoff import Backoff

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
# A process that ran for so long was well: its crash is a new one, and the next pause the first.
STEADY_SECONDS = LONGEST_PAUSE


class Phase(Enum):
    """What a process is doing."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSING = "pausing"
    DRAINING = "draining"
    ENDED = "ended"


_ALIVE = frozenset({Phase.STARTING, Phase.RUNNING, Phase.DRAINING})


class Verb(Enum):
    """What the shell is to do with a process."""

    START = "start"
    DRAIN = "drain"
    KILL = "kill"


# What to do, and with which process, counting from 0.
Order = tuple[Verb, int]


class _Place:
    """One of the processes, through all its restarts."""

    def __init__(self, backoff: Backoff) -> None:
        self.backoff = backoff
        self.phase = Phase.ENDED
        self.started = 0.0
        # When the pause is over, or patience with draining.
        self.due: float | None = None
        self.restarts = 0


class Supervision:
    """Keeps `processes` processes going until it is told to stop, or to go on makes no sense.

    - A process that ends without having been told to, whatever its exit code, is started again
      after a pause: 0.5 s at first, doubling up to 30 s, with jitter; 0.5 s again after it had run
      for 30 s.
    - If the callback cannot be loaded and never could, all stop, with exit code 2. Once it was
      loaded, the like is a crash as any other: perhaps a database was away, or an edit is
      unfinished.
    - If the subscription fails for good in one process, all stop, with exit code 1.
    - Told to stop, processes drain; those that have not ended after `shutdown_timeout` seconds are
      killed. Told a second time, all are killed at once.
    - A reload drains them, and starts each again as soon as it has ended.

    Methods take the time in seconds of a monotonic clock, and return what to do now.
    """

    def __init__(
        self,
        processes: int,
        shutdown_timeout: float,
        *,
        new_backoff: Callable[[], Backoff] = lambda: Backoff(FIRST_PAUSE, LONGEST_PAUSE),
    ) -> None:
        self._places = [_Place(new_backoff()) for _ in range(processes)]
        self._shutdown_timeout = shutdown_timeout
        self._was_loaded = False
        self._is_stopping = False
        # The signal that asked to stop, if one did.
        self._signal: int | None = None
        self._cut_short = 0
        self._given_up: int | None = None
        # Why it was given up; None if it was not.
        self.reason: str | None = None

    # ---- what is seen --------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return all(place.phase is Phase.ENDED for place in self._places)

    @property
    def exit_code(self) -> int:
        """0: stopped by SIGTERM, and all had ended in time. 1: some had not, or the subscription
        failed. 2: no such callback. 128 and the signal: stopped by Ctrl-C, or at once."""
        if self._given_up is not None:
            return self._given_up
        if self._signal == signal.SIGTERM:
            return 1 if self._cut_short else 0
        return 0 if self._signal is None else 128 + self._signal

    @property
    def cut_short(self) -> int:
        """Processes that were told to stop and did not finish their callbacks in time."""
        return self._cut_short

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    @property
    def next_due(self) -> float | None:
        """When `advance` has something to do."""
        return min((place.due for place in self._places if place.due is not None), default=None)

    def phase(self, number: int) -> Phase:
        return self._places[number].phase

    def due(self, number: int) -> float | None:
        """When a pausing process starts, or a draining one is killed."""
        return self._places[number].due

    def restarts(self, number: int) -> int:
        """How often a process was started again, reloads not counted."""
        return self._places[number].restarts

    # ---- events --------------------------------------------------------------------------------

    def begin(self, now: float) -> list[Order]:
        """Start all."""
        return [self._start(number, now) for number in range(len(self._places))]

    def loaded(self, number: int) -> None:
        """A process has loaded the callback."""
        self._was_loaded = True
        place = self._places[number]
        if place.phase is Phase.STARTING:
            place.phase = Phase.RUNNING

    def unusable(self, number: int, reason: str, now: float) -> list[Order]:
        """A process could not load the callback; it will end."""
        return [] if self._was_loaded else self._give_up(2, reason, now)

    def failed(self, number: int, reason: str, now: float) -> list[Order]:
        """The subscription of a process failed for good; the process will end."""
        return self._give_up(1, reason, now)

    def ended(self, number: int, code: int, now: float) -> list[Order]:
        """A process has ended; a negative exit code is the signal that killed it."""
        place = self._places[number]
        was_told_to = place.phase is Phase.DRAINING
        place.due = None
        if self._is_stopping:
            place.phase = Phase.ENDED
            self._cut_short += was_told_to and code != 0
            return []
        if was_told_to:
            return [self._start(number, now)]
        if now - place.started >= STEADY_SECONDS:
            place.backoff.reset()
        place.phase = Phase.PAUSING
        place.due = now + place.backoff.next_pause()
        return []

    def reload(self, now: float) -> list[Order]:
        """The callback's code has changed."""
        orders = self._drain(now)
        for number, place in enumerate(self._places):
            if place.phase is Phase.PAUSING:
                place.backoff.reset()
                orders.append(self._start(number, now))
        return orders

    def stop(self, number: int, now: float) -> list[Order]:
        """A signal came that asks to stop; the second one means at once."""
        if self._signal is not None:
            self._given_up = 128 + number
            return self._kill(range(len(self._places)))
        self._signal = number
        return self._begin_stopping(now)

    def advance(self, now: float) -> list[Order]:
        """Do what is due."""
        due = [
            number
            for number, place in enumerate(self._places)
            if place.due is not None and place.due <= now
        ]
        orders = self._kill(due)
        for number in due:
            place = self._places[number]
            place.due = None
            if place.phase is Phase.PAUSING:
                place.restarts += 1
                orders.append(self._start(number, now))
        return orders

    # ---- rules ---------------------------------------------------------------------------------

    def _start(self, number: int, now: float) -> Order:
        place = self._places[number]
        place.phase, place.started, place.due = Phase.STARTING, now, None
        return (Verb.START, number)

    def _drain(self, now: float) -> list[Order]:
        orders = []
        for number, place in enumerate(self._places):
            if place.phase in (Phase.STARTING, Phase.RUNNING):
                place.phase, place.due = Phase.DRAINING, now + self._shutdown_timeout
                orders.append((Verb.DRAIN, number))
        return orders

    def _kill(self, numbers: Sequence[int]) -> list[Order]:
        return [(Verb.KILL, number) for number in numbers if self._places[number].phase in _ALIVE]

    def _begin_stopping(self, now: float) -> list[Order]:
        if self._is_stopping:
            return []
        self._is_stopping = True
        orders = self._drain(now)
        for place in self._places:
            if place.phase is Phase.PAUSING:
                place.phase, place.due = Phase.ENDED, None
        return orders

    def _give_up(self, code: int, reason: str, now: float) -> list[Order]:
        if not self._is_stopping:
            self._given_up, self.reason = code, reason
        return self._begin_stopping(now)
