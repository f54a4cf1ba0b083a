"""Thread of a watch: reads frames of many feeds over one stream, and reopens a broken stream."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

import grpc
from google.protobuf.message import DecodeError

from pullstream.rpc.named_errors import name_resource
from pullstream.rpc.rpcs import to_error
from pullstream.runtime.callback_kinds import refuse_awaitable
from pullstream.runtime.lifecycle import Lifecycle, SubscriptionState
from pullstream.runtime.outage_reporter import OutageReporter
from pullstream.runtime.thread_start import start_or_undo
from pullstream_protocol.call_lock import CallLock
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock
from pullstream_protocol.due_thread import DueThread
from pullstream_protocol.errors import Internal, RpcError, Unavailable
from pullstream_protocol.inbox import Inbox
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.rpcs import BY_METHOD

from .frames import Frame, Opened
from .reader_future import ReaderFuture
from .resumable_watch import ResumableWatch

_log = logging.getLogger("pullstream.watch")

FrameHandler = Callable[[Frame], object]


class SilenceTimer:
    """Calls `on_silence` when a reader has waited for `limit` seconds without receiving anything.

    The reader's thread reports when it starts waiting and when it stops waiting. The time that
    handlers take does not count. The timer's thread wakes up only when the limit may be reached,
    and not for each received frame.

    Args:
        clock: The source of time.
        limit: Seconds of silence.
        on_silence: Called on the timer's thread. Must not block.
    """

    def __init__(self, clock: Clock, limit: float, on_silence: Callable[[], None]) -> None:
        self._clock = clock
        self._limit = limit
        self._on_silence = on_silence
        # None while the reader does not wait. Written by the reader, and by the timer's thread so
        # that it reports each silence once.
        self._waiting_since: float | None = None
        self._thread = DueThread(
            clock, self._next_due, self._check, name="pullstream-silence-timer"
        )

    def start(self) -> None:
        """Start the thread; needed once, before the reader waits."""
        self._thread.start()

    def waiting(self) -> None:
        """Report that the reader starts waiting."""
        self._waiting_since = self._clock.monotonic()

    def heard(self) -> None:
        """Report that something was received, or that the stream has ended."""
        self._waiting_since = None

    def stop(self) -> None:
        """End the thread."""
        self._thread.stop()

    def _next_due(self) -> float:
        since = self._waiting_since
        return (self._clock.monotonic() if since is None else since) + self._limit

    def _check(self) -> None:
        since = self._waiting_since
        if since is not None and self._clock.monotonic() >= since + self._limit:
            self._waiting_since = None
            self._on_silence()


class FrameCall(Protocol):
    """A running Watch call: an iterator of encoded frames. Any thread may call `cancel`."""

    def __next__(self) -> bytes: ...

    def cancel(self) -> object:
        """End the call; an iteration in progress raises an error."""


def frame_calls(channel: grpc.Channel) -> Callable[[feeds.WatchRequest], FrameCall]:
    """Return a function that starts Watch calls on `channel`.

    The calls return encoded frames. The reader's thread parses them, because gRPC's thread serves
    other calls too.
    """
    rpc = BY_METHOD["Watch"]
    begin: Callable[[feeds.WatchRequest], FrameCall] = channel.unary_stream(
        rpc.path,
        request_serializer=feeds.WatchRequest.SerializeToString,
        response_deserializer=None,
    )
    return begin


class NotTaken(Exception):
    """Raised by a handler that passes frames on, when the receiver has not taken this frame.

    It ends the watch, and the frame does not count as handled.
    """


class WatchFuture(ReaderFuture):
    """A running watch.

    `result()` blocks until the watch ends. It returns True if the watch was closed or if all its
    topics were deleted. Otherwise it raises the error that ended the watch: an error of the stream
    that a retry cannot fix, or an error of the handler.
    """

    def __init__(self, watch: WatchReader) -> None:
        super().__init__(watch, f"the watch of {watch.topics}")
        self._watch = watch

    @property
    def state(self) -> SubscriptionState:
        """The state of the watch: connecting, streaming, reconnecting, closing or closed."""
        return self._watch.state

    @property
    def resume_token(self) -> str:
        """The encoded positions after the last handled frame.

        Pass it to `watch` as `resume_token`, also in another process.
        """
        return self._watch.resume_token


class WatchReader:
    """Reads frames on a background thread and passes them to a handler one at a time.

    The thread owns the session and the stream: it opens the stream, reads and handles frames, waits
    after a failure, and opens the next stream. It reads the next frame when the handler has
    returned, so a slow handler slows the server through HTTP/2 flow control. Any thread may call
    `stop`. A `SilenceTimer` cancels a stream that is silent for twice the heartbeat interval.

    Args:
        begin: Starts a Watch call.
        session: The positions of the watch.
        on_frame: The handler.
        heartbeat: The longest time between two frames of a healthy server, in seconds.
        clock: The source of time.
        reconnect: Called when a stream is silent. `begin` should use another connection then.
    """

    def __init__(
        self,
        begin: Callable[[feeds.WatchRequest], FrameCall],
        session: ResumableWatch,
        on_frame: FrameHandler,
        *,
        heartbeat: float,
        clock: Clock = SYSTEM_CLOCK,
        reconnect: Callable[[], None] = lambda: None,
    ) -> None:
        self._begin = begin
        self._session = session
        self._on_frame = on_frame
        self._clock = clock
        self._lifecycle = Lifecycle(clock, lambda change: None)
        self._silence = 2 * heartbeat
        self._reconnect = reconnect
        # Guards `_call` and `_stopping`: `stop` either sees the current call and cancels it, or
        # sets `_stopping` before `_open` checks it.
        self._lock = CallLock()
        self._call: FrameCall | None = None
        self._stopping = False
        self._is_silent = False
        self._outage = OutageReporter(_log)
        self._silence_timer = SilenceTimer(clock, self._silence, self._fell_silent)
        # Only used to interrupt a pause.
        self._inbox: Inbox[None] = Inbox(clock)
        self.future: WatchFuture = WatchFuture(self)
        # A daemon thread, because a program may exit without closing its watches.
        self._thread = threading.Thread(target=self._run, name="pullstream-watch", daemon=True)

    @property
    def state(self) -> SubscriptionState:
        """The present state of the watch."""
        return self._lifecycle.state

    @property
    def resume_token(self) -> str:
        """The positions after the last handled frame, for a later watch."""
        return self._session.resume_token

    @property
    def topics(self) -> str:
        """The names of the topics, for the log; of many, the first three."""
        topics = self._session.topics
        more = f" and {len(topics) - 3} more" if len(topics) > 3 else ""
        return ", ".join(topics[:3]) + more

    def start(self) -> None:
        """Start both threads, or none if that is impossible."""
        self._silence_timer.start()
        start_or_undo(self._thread, self._silence_timer.stop)

    def stop(self) -> None:
        """Handle no more frames, and end the watch. Idempotent, never waits."""
        self._lifecycle.move(SubscriptionState.CLOSING)
        with self._lock.once:
            self._stopping = True
            call = self._call
        if call is not None:
            call.cancel()
        self._inbox.wake()

    def join(self) -> None:
        """Wait for the thread. It ends when the future is done."""
        self._thread.join()

    def runs_here(self) -> bool:
        """Return whether the caller is the watch's thread, which runs the handler."""
        return threading.current_thread() is self._thread

    # ---- the watch's thread --------------------------------------------------------------------

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            for wire, frame in self._frames():
                self._handle(frame)
                self._session.handled(wire)
        except NotTaken:
            pass
        except BaseException as raised:
            error = raised
        self.stop()
        self._silence_timer.stop()
        self._inbox.close()
        self._lifecycle.move(SubscriptionState.CLOSED)
        if error is None:
            self.future.set_result(True)
        else:
            self.future.set_exception(error)

    def _handle(self, frame: Frame) -> None:
        try:
            refuse_awaitable(self._on_frame(frame), self._on_frame)
        except NotTaken:
            raise
        except BaseException:
            # Continuing would lose the frame, or handle the same frame again and again.
            _log.exception("the frame handler raised an error; the watch ends")
            raise

    def _frames(self) -> Iterator[tuple[feeds.Frame, Frame]]:
        """Yield the frames to handle, from this stream and the streams after it."""
        while not self._stopping and not self._session.is_over:
            call = self._call or self._open()
            self._silence_timer.waiting()
            try:
                wire = feeds.Frame.FromString(next(call))
            except StopIteration:
                self._broken(None)
            except grpc.RpcError as error:
                cause = to_error(error, "Watch")
                name_resource(cause, self._session.topics)
                self._broken(cause)
            except DecodeError as error:
                call.cancel()
                self._broken(Internal(f"the server sent a frame that cannot be parsed: {error}"))
            else:
                self._silence_timer.heard()
                frame = self._session.received(wire)
                if isinstance(frame, Opened):
                    self._outage.over()
                    self._lifecycle.move(SubscriptionState.STREAMING)
                if frame is not None and not self._stopping:
                    yield wire, frame

    def _open(self) -> FrameCall:
        call = self._begin(self._session.request())
        with self._lock:
            self._call = call
            too_late = self._stopping
        if too_late:
            # `stop` ran before this call was stored, so it has not cancelled it.
            call.cancel()
        return call

    def _broken(self, cause: RpcError | None) -> None:
        """Handle the end of a stream: wait until the next one may be opened.

        Raises:
            RpcError: The error is final.
        """
        self._silence_timer.heard()
        with self._lock:
            self._call = None
            if self._is_silent:
                self._is_silent = False
                cause = Unavailable(f"the server sent nothing for {self._silence} s")
        if self._stopping:
            return
        pause = self._session.broken(cause)
        self._outage.failed(self._clock.monotonic(), cause)
        _log.info("the stream ended (%s); opening another in %.1f s", cause or "closed", pause)
        again = self._clock.monotonic() + pause
        self._lifecycle.move(SubscriptionState.RECONNECTING, cause)
        while not self._stopping and self._clock.monotonic() < again:
            self._inbox.take(again)

    # ---- thread of the silence timer -----------------------------------------------------------

    def _fell_silent(self) -> None:
        with self._lock:
            self._is_silent = self._call is not None
            call = self._call
        if call is not None:
            self._reconnect()
            call.cancel()
