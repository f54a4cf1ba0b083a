"""Handling of Ctrl-C and SIGTERM, the signals that stop a program."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopFlag(Protocol):
    """A flag that somebody else sets: a `threading.Event`, or a `Latch` for signal handlers."""

    def wait(self, timeout: float, /) -> bool:
        """Wait for some seconds, or until the flag is set; return whether it is set."""


@contextmanager
def handled_by(
    handler: Callable[[int, FrameType | None], None], numbers: Iterable[int] = STOP_SIGNALS
) -> Iterator[None]:
    """Handle signals with `handler` until the block ends. Works only on the main thread.

    Args:
        handler: The signal handler.
        numbers: The signals. Default: SIGINT and SIGTERM.
    """
    previous = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)
