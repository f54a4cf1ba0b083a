"""The consumer: the thread that reads the stream."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from google.api_core.bidi import BackgroundConsumer

from protocol.clock import SYSTEM_CLOCK
from subscriber.stint import Stint

from .stream import Arrival, ResumingStream

# How long the server may take to end its side of a stream that we have half-closed, in seconds.
HALF_CLOSE_WAIT = 1.0

# After that the call is cancelled, and the reader returns as soon as it is scheduled.
CANCEL_WAIT = 10.0


class _Turn:
    """One thread's time as the reader: what its BackgroundConsumer takes for the "bidi rpc".

    Args:
        stream: what is read.
    """

    def __init__(self, stream: ResumingStream) -> None:
        self._stream = stream
        self.recv = stream.recv
        self.close = stream.close
        self.add_done_callback = stream.add_done_callback
        # Looked at by the reader after each response: whether to read another.
        self.is_active = True
        self.reader: int | None = None

    def open(self) -> None:
        """The first that the reader does."""
        self.reader = threading.get_ident()
        self._stream.open()


class Consumer:
    """google.api_core's BackgroundConsumer reading a ResumingStream.

    Its thread calls `on_response` for each response, and `on_end` once, as its last act, with what
    ended the stream (StreamEnded when we closed it). Any other thread may pause, resume and stop.

    The last thing that `on_response` does may be to run callbacks, as a guest of the scheduler's.
    If it is held up there, another BackgroundConsumer reads on, so that there is always one thread
    at the stream, and the first ends when it comes back.
    """

    def __init__(
        self,
        stream: ResumingStream,
        *,
        on_response: Callable[[Arrival], None],
        on_end: Callable[[Exception], None],
    ) -> None:
        self._stream = stream
        self._on_response = on_response
        self._on_end = on_end
        self._lock = threading.Lock()
        self._stopping = False
        self._ended = threading.Event()
        self._turn = _Turn(stream)
        self._background = self._reader_of(self._turn)

    def start(self) -> None:
        self._background.start()  # type: ignore[no-untyped-call]

    def pause(self) -> None:
        """Read no more responses after the present one; gRPC then holds back the server."""
        with self._lock:
            # A paused reader could not see the end.
            if not self._stopping:
                self._background.pause()  # type: ignore[no-untyped-call]

    def resume(self) -> None:
        with self._lock:
            self._background.resume()  # type: ignore[no-untyped-call]

    def stint(self) -> Stint | None:
        """For the reader, at the end of `on_response`: it is going to run callbacks.

        None on any other thread.
        """
        if threading.get_ident() != self._turn.reader:
            return None
        return Stint(self._take_over)

    def stop(self, timeout: float = CANCEL_WAIT) -> None:
        """End the stream and the thread. Idempotent; not to be called on that thread.

        It takes `timeout` seconds at most, up to half of which the server has to end its side; a
        second more if a callback holds the reader up.
        """
        deadline = SYSTEM_CLOCK.monotonic() + timeout
        self._stream.close()
        with self._lock:
            self._stopping = True
        self.resume()
        self._ended.wait(min(timeout / 2, HALF_CLOSE_WAIT))
        # Also when the reader has ended: an error of ours ends it without ending the call.
        self._stream.abort()
        self._ended.wait(SYSTEM_CLOCK.timeout(deadline))
        # Only now: BackgroundConsumer forgets its callbacks at once, also for a response in hand.
        self._background.stop()  # type: ignore[no-untyped-call]

    def _reader_of(self, turn: _Turn) -> BackgroundConsumer:
        # BackgroundConsumer ships without annotations.
        return BackgroundConsumer(  # type: ignore[no-untyped-call]
            turn, self._on_response, on_fatal_exception=partial(self._finish, turn)
        )

    def _take_over(self) -> None:
        """On the watch's thread, while the reader is in a callback: let another be the reader."""
        with self._lock:
            turn = _Turn(self._stream)
            background = self._reader_of(turn)
            if self._background.is_paused:
                background.pause()  # type: ignore[no-untyped-call]
            background.start()  # type: ignore[no-untyped-call]
            self._turn.is_active = False
            self._turn, self._background = turn, background

    def _finish(self, turn: _Turn, error: Exception) -> None:
        with self._lock:
            is_reader = turn is self._turn
        if is_reader:
            self._stream.discard()
            self._ended.set()
        # Else it failed when it came back from its callback, and another is at the stream: to that
        # is left what both must not do, to read the call's end.
        self._on_end(error)
