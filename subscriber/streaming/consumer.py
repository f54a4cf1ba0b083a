"""The consumer: the thread that reads the stream."""

from __future__ import annotations

import threading
from collections.abc import Callable

from google.api_core.bidi import BackgroundConsumer

from .stream import Arrival, ResumingStream

# How long the server may take to end its side of a stream that we have half-closed, in seconds.
HALF_CLOSE_WAIT = 1.0

# After that the call is cancelled, and the reader returns as soon as it is scheduled.
CANCEL_WAIT = 10.0


class Consumer:
    """google.api_core's BackgroundConsumer reading a ResumingStream.

    Its thread calls `on_response` for each response, and `on_end` once, as its last act, with what
    ended the stream (StreamEnded when we closed it). Any other thread may pause, resume and stop.
    """

    def __init__(
        self,
        stream: ResumingStream,
        *,
        on_response: Callable[[Arrival], None],
        on_end: Callable[[Exception], None],
    ) -> None:
        self._stream = stream
        self._on_end = on_end
        self._lock = threading.Lock()
        self._stopping = False
        self._ended = threading.Event()
        # BackgroundConsumer ships without annotations.
        self._background = BackgroundConsumer(  # type: ignore[no-untyped-call]
            stream, on_response, on_fatal_exception=self._finish
        )

    def start(self) -> None:
        self._background.start()  # type: ignore[no-untyped-call]

    def pause(self) -> None:
        """Read no more responses after the present one; gRPC then holds back the server."""
        with self._lock:
            # A paused reader could not see the end.
            if not self._stopping:
                self._background.pause()  # type: ignore[no-untyped-call]

    def resume(self) -> None:
        self._background.resume()  # type: ignore[no-untyped-call]

    def stop(self, timeout: float = CANCEL_WAIT) -> None:
        """End the stream and the thread. Idempotent; not to be called on that thread.

        The server has up to `timeout` seconds to end its side, and what then runs as long again.
        """
        self._stream.close()
        with self._lock:
            self._stopping = True
        self.resume()
        self._ended.wait(min(timeout, HALF_CLOSE_WAIT))
        # Also when the reader has ended: an error of ours ends it without ending the call.
        self._stream.abort()
        self._ended.wait(min(timeout, CANCEL_WAIT))
        # Only now: BackgroundConsumer forgets its callbacks at once, also for a response in hand.
        self._background.stop()  # type: ignore[no-untyped-call]

    def _finish(self, error: Exception) -> None:
        self._stream.discard()
        self._ended.set()
        self._on_end(error)
