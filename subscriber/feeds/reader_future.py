"""The future of what reads a topic on a thread of its own."""

from __future__ import annotations

from typing import Protocol

from subscriber.futures import RunningFuture, ShutdownMode


class Reader(Protocol):
    """What a ReaderFuture stands for."""

    def stop(self) -> None:
        """Hand out no more, and end. Idempotent, never waits."""

    def join(self) -> None:
        """Wait for its threads, which end when the future is done."""

    def runs_here(self) -> bool: ...


class ReaderFuture(RunningFuture):
    """A reader that runs until it is closed, or ends with an error."""

    def __init__(self, reader: Reader) -> None:
        super().__init__()
        self._reader = reader

    def close(self, timeout: float | None = None) -> bool:
        """End it, and wait until it has: the handler is done with what it has, and gets no more.

        Args:
            timeout: seconds to wait for a handler that is at work. None: as long as it takes.

        Inside the handler, and on the event loop of one that is an `async def`, it does not wait.
        Returns whether it is over.
        """
        return self._close_and_wait(timeout)

    def begin_close(self, timeout: float | None = None, mode: ShutdownMode | None = None) -> None:
        """As `close`, but without waiting; the arguments are of no account here."""
        self._check_process()
        self._reader.stop()

    def wait_for_end(self, timeout: float | None = None) -> None:
        """Wait until it is over, or for so many seconds."""
        self._wait(timeout)
        if self.done() and not self.runs_here():
            self._reader.join()

    def runs_here(self) -> bool:
        return self._reader.runs_here()
