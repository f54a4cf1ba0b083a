"""The consumer: the thread that reads the stream."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from google.api_core.bidi import BackgroundConsumer

from pullstream.scheduling.inline_run import InlineRun
from pullstream_protocol.call_lock import CallLock
from pullstream_protocol.clock import SYSTEM_CLOCK

from .stream import ReceivedResponse, ResumingStream

# How long the server may take to end its side of a stream that we have half-closed, in seconds.
HALF_CLOSE_WAIT = 1.0

# After HALF_CLOSE_WAIT the call is cancelled, and the reader returns as soon as it is scheduled.
# This is the default limit for the whole stop, in seconds.
CANCEL_WAIT = 10.0


class _ReaderRun:
    """The time during which one thread is the reader.

    The thread's BackgroundConsumer uses this object as its "bidi rpc".

    Args:
        stream: The stream that the thread reads.
    """

    def __init__(self, stream: ResumingStream) -> None:
        self._stream = stream
        self.recv = stream.recv
        self.close = stream.close
        self.add_done_callback = stream.add_done_callback
        # The reader checks this after each response: whether to read another.
        self.is_active = True
        self.reader: int | None = None

    def open(self) -> None:
        """Record the reader's thread, and open the stream. The reader calls this first."""
        self.reader = threading.get_ident()
        self._stream.open()


class Consumer:
    """A reader thread: google.api_core's BackgroundConsumer on a ResumingStream.

    The thread calls `on_response` for each response. Its last action is one call of `on_end` with
    the error that ended the stream (StreamEnded if this client closed it). Any other thread may
    pause, resume and stop it.

    As its last step, `on_response` may run callbacks for the scheduler (see InlineRun). If a
    callback takes long, another BackgroundConsumer continues reading, so that one thread always
    reads the stream. The first thread ends when its callback returns.

    Args:
        stream: The stream to read.
        on_response: Takes each response.
        on_end: Takes the error that ended the stream.
    """

    def __init__(
        self,
        stream: ResumingStream,
        *,
        on_response: Callable[[ReceivedResponse], None],
        on_end: Callable[[Exception], None],
    ) -> None:
        self._stream = stream
        self._on_response = on_response
        self._on_end = on_end
        self._lock = CallLock()
        self._stopping = False
        self._ended = threading.Event()
        self._turn = _ReaderRun(stream)
        self._background = self._reader_of(self._turn)

    def start(self) -> None:
        """Start the reader thread, which opens the stream."""
        self._background.start()  # type: ignore[no-untyped-call]

    def pause(self) -> None:
        """Read no responses after the current one; gRPC then stops the server from sending."""
        with self._lock.once:
            # A paused reader would not notice the end of the stream.
            if not self._stopping:
                self._background.pause()  # type: ignore[no-untyped-call]

    def resume(self) -> None:
        """Read responses again after `pause`; without a pause, do nothing."""
        with self._lock.once:
            self._background.resume()  # type: ignore[no-untyped-call]

    def inline_run(self) -> InlineRun | None:
        """Begin to run callbacks on the reader's thread, at the end of `on_response`.

        Returns None on any other thread.
        """
        if threading.get_ident() != self._turn.reader:
            return None
        return InlineRun(self._take_over)

    def stop(self, timeout: float = CANCEL_WAIT) -> None:
        """End the stream and the thread. Idempotent. Must not be called on that thread.

        Args:
            timeout: Longest time in seconds. The server has up to half of it, and at most
                HALF_CLOSE_WAIT, to end its side. If a callback delays the reader, the stop can
                take one second more.
        """
        deadline = SYSTEM_CLOCK.monotonic() + timeout
        self._stream.close()
        with self._lock.once:
            self._stopping = True
        self.resume()
        self._ended.wait(min(timeout / 2, HALF_CLOSE_WAIT))
        # Needed also when the reader has ended: an error in this process ends the reader but not
        # the call.
        self._stream.abort()
        self._ended.wait(SYSTEM_CLOCK.timeout(deadline))
        # Only now, because BackgroundConsumer drops its callbacks immediately, and the reader may
        # still need them for its current response.
        self._background.stop()  # type: ignore[no-untyped-call]

    def _reader_of(self, turn: _ReaderRun) -> BackgroundConsumer:
        # BackgroundConsumer ships without annotations.
        return BackgroundConsumer(  # type: ignore[no-untyped-call]
            turn, self._on_response, on_fatal_exception=partial(self._finish, turn)
        )

    def _take_over(self) -> None:
        """Start another reader while the present one runs a callback.

        Runs on the thread of the StallMonitor.
        """
        with self._lock.once:
            turn = _ReaderRun(self._stream)
            background = self._reader_of(turn)
            if self._background.is_paused:
                background.pause()  # type: ignore[no-untyped-call]
            background.start()  # type: ignore[no-untyped-call]
            self._turn.is_active = False
            self._turn, self._background = turn, background

    def _finish(self, turn: _ReaderRun, error: Exception) -> None:
        with self._lock.once:
            is_reader = turn is self._turn
        if is_reader:
            self._stream.discard()
            self._ended.set()
        # Otherwise this thread failed when it returned from its callback, and another thread reads
        # the stream. Only that thread may read the end of the call.
        self._on_end(error)
