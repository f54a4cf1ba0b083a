"""Future of a reader that reads topics on a background thread."""

from __future__ import annotations

from typing import Protocol

from pullstream.futures import RunningFuture, ShutdownMode


class RunningReader(Protocol):
    """The running reader behind a `ReaderFuture`."""

    def stop(self) -> None:
        """Deliver nothing more, and end. Idempotent, never waits."""

    def join(self) -> None:
        """Wait for the threads of the reader. They end when the future is done."""

    def runs_here(self) -> bool:
        """Return whether the calling thread belongs to the reader, so that it must not `join`."""


class ReaderFuture(RunningFuture):
    """A reader that runs until it is closed, or ends with an error."""

    def __init__(self, reader: RunningReader, activity: str = "") -> None:
        super().__init__(activity)
        self._reader = reader

    def close(self, timeout: float | None = None) -> bool:
        """End the reader and wait until it has ended.

        The handler finishes its current call, and is not called again. `close` does not wait if it
        is called inside the handler, or on the event loop of an `async def` handler.

        Args:
            timeout: Seconds to wait for a running handler. None waits without a limit.

        Returns:
            Whether the reader has ended.
        """
        return self._close_and_wait(timeout)

    def begin_close(self, timeout: float | None = None, mode: ShutdownMode | None = None) -> None:
        """End the reader without waiting. The arguments are ignored."""
        self._fork.refuse_child()
        self._reader.stop()

    def wait_for_end(self, timeout: float | None = None) -> None:
        """Wait until the reader has ended, for at most `timeout` seconds."""
        self.wait_until_done(timeout)
        if self.done() and not self.runs_here():
            self._reader.join()

    def runs_here(self) -> bool:
        """Return whether the current thread is a thread of the reader."""
        return self._reader.runs_here()
