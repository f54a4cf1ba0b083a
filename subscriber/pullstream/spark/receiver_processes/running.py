"""Running a receiver's loop in a program that ends in time."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from pullstream.runtime.process import Latch
from pullstream_protocol.clock import SYSTEM_CLOCK

from .loop import ReceiverLoop
from .report import ReceiverReport

# A program ends within this time after a signal, in seconds.
_END_WITHIN = 9.0


class NotEnded(Exception):
    """The loop has not ended in time, because a call of the storage does not return."""


def run_until(
    loop: ReceiverLoop,
    stop: Latch,
    show: Callable[[ReceiverReport], None] = lambda report: None,
    *,
    every: float = 0.25,
) -> None:
    """Run a loop on another thread, until it ends or `stop` is set.

    Args:
        loop: The loop.
        stop: Ends the loop.
        show: Called with the present numbers again and again, and at the end.
        every: Seconds between two calls.

    Raises:
        NotEnded: The loop does not end. The process can only end by `end_at_once`.
    """
    failures: list[Exception] = []

    def work() -> None:
        try:
            loop.run()
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=work, name="pullstream-receiver", daemon=True)
    thread.start()
    end_at: float | None = None
    while thread.is_alive():
        thread.join(every) if stop.is_set else stop.wait(every)
        if stop.is_set and end_at is None:
            end_at = SYSTEM_CLOCK.monotonic() + _END_WITHIN
            loop.stop()
        if end_at is not None and SYSTEM_CLOCK.monotonic() > end_at:
            raise NotEnded(
                f"the receiver has not ended within {_END_WITHIN:g} s, because the storage does "
                "not answer; messages that it holds come again when their leases end"
            )
        show(loop.report())
    for failure in failures:
        raise failure


def end_at_once(code: int) -> NoReturn:
    """End the process without waiting for its threads."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
