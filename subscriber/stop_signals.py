"""Ctrl-C and SIGTERM: what asks a program to stop."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def handled_by(
    handler: Callable[[int, FrameType | None], None], numbers: Iterable[int] = STOP_SIGNALS
) -> Iterator[None]:
    """Let `handler` have these signals until the block ends. Only on the main thread."""
    previous = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)
