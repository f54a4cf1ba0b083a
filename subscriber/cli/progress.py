"""How far a running command has come: told by callbacks, waited for by the main thread."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

import click

from protocol.clock import SYSTEM_CLOCK, Clock
from subscriber.stop_signals import STOP_SIGNALS, handled_by

from .parameters import Seconds

# A signal between the main thread's last look and its going to sleep wakes nobody (Python notes it
# and runs its handler when that thread next does something): it looks again after so many seconds.
_LOOK_SECONDS = 0.5

F = TypeVar("F", bound=Callable[..., Any])


def end_options(command: F) -> F:
    """Add the options that say when a command has had enough; see `Progress`."""
    for option in (
        click.option(
            "--idle-exit",
            type=Seconds(min=0),
            metavar="SECONDS",
            help="Stop when nothing has come for so long.",
        ),
        click.option("--max-messages", type=click.IntRange(min=1), help="Stop after this many."),
    ):
        command = option(command)
    return command


class Progress:
    """Counts messages up to a limit and notes when the last one ended. Thread-safe.

    Callbacks call `begin` and `end`, the main thread `wait`, a signal's handler `interrupt`, any
    thread `stop`.

    Args:
        limit: how many messages to take on; None: no limit.
        idle: seconds without any work after which there is nothing to wait for; None: no limit.
    """

    def __init__(
        self, limit: int | None = None, idle: float | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._limit = limit
        self._idle = idle
        self._clock = clock
        self._changed = threading.Condition()
        self._begun = 0
        self._ended = 0
        self._quiet_since = clock.monotonic()
        self._stopped = False
        self._interrupted = False
        # Wakes the main thread. Not the condition: a handler runs in the midst of whatever that
        # thread does, perhaps with the condition's lock, and a SimpleQueue may be written to there.
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()

    def begin(self) -> bool:
        """Whether to take on one more message. If so, `end` must follow.

        One too many waits here until the others have ended: given back at once, it would be
        delivered again at once, and so on.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._begun != self._limit)
            if not self._stopped:
                self._begun += 1
            return not self._stopped

    def end(self) -> None:
        """A message has been settled."""
        with self._changed:
            self._ended += 1
            self._quiet_since = self._clock.monotonic()
        if self._idle is not None or self._ended == self._limit:
            self._news.put(None)

    def stop(self) -> None:
        """Nothing more is to be taken on."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._news.put(None)

    def interrupt(self) -> None:
        """End `wait`. Takes no lock, so that a signal's handler may call it."""
        self._interrupted = True
        self._news.put(None)

    def wait(self) -> None:
        """Block until the limit is reached, nothing came for too long, or it was stopped."""
        self._clock.add_waker(self._wake)
        try:
            while not self._is_over():
                due = self._clock.timeout(self._idle_deadline())
                with suppress(queue.Empty):
                    self._news.get(
                        timeout=_LOOK_SECONDS if due is None else min(due, _LOOK_SECONDS)
                    )
        finally:
            self._clock.remove_waker(self._wake)

    def _is_over(self) -> bool:
        if self._stopped or self._interrupted or self._ended == self._limit:
            return True
        deadline = self._idle_deadline()
        return deadline is not None and deadline <= self._clock.monotonic()

    def _idle_deadline(self) -> float | None:
        with self._changed:
            if self._idle is None or self._begun > self._ended:
                return None
            return self._quiet_since + self._idle

    def _wake(self) -> None:
        self._news.put(None)


@contextmanager
def noting_signals(progress: Progress) -> Iterator[list[int]]:
    """Let Ctrl-C and SIGTERM end the wait, and note which it was. A second one ends the process.

    They are not raised: an exception out of a handler strikes the main thread anywhere, as when it
    has a lock that a callback then waits for.
    """
    noted: list[int] = []
    # As it is for a job in the background of a shell script, an ignored one is to stay so.
    wanted = [n for n in STOP_SIGNALS if signal.getsignal(n) is not signal.SIG_IGN]

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        for each in wanted:
            signal.signal(each, signal.SIG_DFL)
        progress.interrupt()

    with handled_by(note, wanted):
        yield noted
