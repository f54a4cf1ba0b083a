"""Ctrl-C and SIGTERM of commands that finish some work before they end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pullstream.runtime.process import Latch
from pullstream.runtime.stop_signals import handled_by

from .context import CliContext

if TYPE_CHECKING:
    from types import FrameType


class StopRequest:
    """The first signal asks a command to stop; the second one interrupts it, with exit code 130.

    Attributes:
        stop: Set by the first signal.
        interrupted: Whether that was Ctrl-C.

    Args:
        session: The context of the command.
        remark: The activity of the command after the first signal.
    """

    def __init__(self, session: CliContext, remark: str) -> None:
        self.stop: Latch = Latch()
        self.interrupted: bool = False
        self._session = session
        self._remark = remark

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """Handle signals during the block, which is on the main thread.

        Raises:
            KeyboardInterrupt: By the second signal.
        """
        with handled_by(self._handle):
            yield

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.stop.is_set:
            raise KeyboardInterrupt
        self.interrupted = number == signal.SIGINT
        self.stop.set()
        self._session.output.remark(f"{self._remark}; Ctrl-C again stops at once.")
