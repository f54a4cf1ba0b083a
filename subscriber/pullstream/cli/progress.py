"""Progress of a running command: reported by callbacks, awaited by the main thread."""

from __future__ import annotations

import math
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

import click

from pullstream.runtime.process import CHECK_EVERY
from pullstream.runtime.stop_signals import STOP_SIGNALS, handled_by
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock
from pullstream_protocol.queue_wait import get_within

from .parameters import Seconds

F = TypeVar("F", bound=Callable[..., Any])


def end_options(command: F) -> F:
    """Add the options that end a command; see `Progress`."""
    for option in (
        click.option(
            "--idle-exit",
            type=Seconds(min=0),
            metavar="SECONDS",
            help="Stop after this time without a message.",
        ),
        click.option("--max-messages", type=click.IntRange(min=1), help="Stop after this many."),
    ):
        command = option(command)
    return command


class Progress:
    """Counts messages up to a limit and records when the last one ended. Thread-safe.

    Callbacks call `begin` and `end`, the main thread calls `wait`, a signal handler calls
    `interrupt`, and any thread may call `stop`.

    Args:
        limit: Maximum number of messages. None: no limit.
        idle: `wait` ends after this many seconds without a message. None: no limit.
        clock: Source of time.
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
        # Wakes the main thread. The condition cannot be used: a signal handler interrupts that
        # thread anywhere, perhaps while it holds the condition's lock. Writing to a SimpleQueue is
        # allowed there.
        self._updates: queue.SimpleQueue[None] = queue.SimpleQueue()

    def begin(self) -> bool:
        """Return whether to handle one more message. If so, `end` must follow.

        A message beyond the limit waits here until the others have ended. If it were returned at
        once, it would be redelivered at once, again and again.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._begun != self._limit)
            if not self._stopped:
                self._begun += 1
            return not self._stopped

    def end(self) -> None:
        """Record that a message is settled."""
        with self._changed:
            self._ended += 1
            self._quiet_since = self._clock.monotonic()
        if self._idle is not None or self._ended == self._limit:
            self._updates.put(None)

    def stop(self) -> None:
        """Handle no more messages."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._updates.put(None)

    def interrupt(self) -> None:
        """End `wait`. Takes no lock, so a signal handler may call it."""
        self._interrupted = True
        self._updates.put(None)

    def wait(self) -> None:
        """Block until the limit is reached, the idle time has passed, or the command is stopped."""
        self._clock.add_waker(self._wake)
        try:
            while not self._is_over():
                due = self._clock.timeout(self._idle_deadline())
                with suppress(queue.Empty):
                    # Without the limit, a signal could be lost; see CHECK_EVERY.
                    get_within(self._updates, min(CHECK_EVERY, math.inf if due is None else due))
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
        self._updates.put(None)


@contextmanager
def noting_signals(
    progress: Progress, before_the_end: Callable[[], None] | None = None
) -> Iterator[list[int]]:
    """Make Ctrl-C and SIGTERM end the wait, and record the signal.

    A second signal ends the process, after its handler has called `before_the_end`. No exception is
    raised: an exception from a signal handler can occur anywhere in the main thread, for example
    while it holds a lock for which a callback waits.
    """
    noted: list[int] = []
    # Signals that are ignored stay ignored, as in a background job of a shell script.
    wanted = [n for n in STOP_SIGNALS if signal.getsignal(n) is not signal.SIG_IGN]

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        for each in wanted:
            signal.signal(each, signal.SIG_DFL if before_the_end is None else end)
        progress.interrupt()

    def end(number: int, frame: FrameType | None) -> None:
        assert before_the_end is not None
        before_the_end()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    with handled_by(note, wanted):
        yield noted
