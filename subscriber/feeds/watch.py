"""A watch: frames of many feeds over one stream, which is opened again whenever it breaks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

import grpc
from google.protobuf.message import DecodeError

from protocol.clock import SYSTEM_CLOCK, Clock
from protocol.errors import Internal, RpcError, Unavailable
from protocol.messages import feeds_pb2 as feeds
from protocol.rpcs import BY_METHOD
from subscriber.outage import Outage
from subscriber.refused_threads import start_or_undo
from subscriber.rpc import to_error
from subscriber.streaming.inbox import Inbox
from subscriber.streaming.state import Lifecycle, SubscriptionState

from .frames import Frame, Opened
from .reader_future import ReaderFuture
from .watch_session import WatchSession
from .watchdog import Watchdog

_log = logging.getLogger("pullstream.watch")

FrameHandler = Callable[[Frame], object]


class FrameCall(Protocol):
    """A Watch call under way: encoded frames, one by one. Any thread may `cancel`."""

    def __next__(self) -> bytes: ...

    def cancel(self) -> object: ...


def frame_calls(channel: grpc.Channel) -> Callable[[feeds.WatchRequest], FrameCall]:
    """What begins Watch calls on `channel`. Frames are parsed by who reads them: gRPC's thread has
    the other calls to see to."""
    rpc = BY_METHOD["Watch"]
    begin: Callable[[feeds.WatchRequest], FrameCall] = channel.unary_stream(
        rpc.path,
        request_serializer=feeds.WatchRequest.SerializeToString,
        response_deserializer=None,
    )
    return begin


class NotTaken(Exception):
    """Raised by a handler that passes frames on, when nobody took this one: it ends the watch, and
    the frame does not count as handled."""


class WatchFuture(ReaderFuture):
    """A running watch.

    `result()` blocks until it ends: it returns True when it was closed or every topic was deleted,
    and raises what ended it otherwise: an error of the stream that another attempt cannot mend, or
    one of the handler.
    """

    def __init__(self, watch: Watch) -> None:
        super().__init__(watch)
        self._watch = watch

    @property
    def state(self) -> SubscriptionState:
        """Whether it is connecting, streaming, reconnecting, closing or closed."""
        return self._watch.state

    @property
    def resume_token(self) -> str:
        """Stands for the positions behind the last frame that was handled: for `watch`'s argument
        of that name, also in another program."""
        return self._watch.resume_token


class Watch:
    """Reads frames and hands them to a handler, one by one, on a thread of its own.

    That thread owns the session and the stream: it opens, reads, handles, waits, and opens again.
    The next frame is read when the handler is done with the one before, so a slow handler slows the
    server, by HTTP/2's window. Any thread may `stop`. A watchdog ends a stream that says nothing
    for twice the time between heartbeats.

    Args:
        begin: begins a call.
        heartbeat: seconds after which the server says something at the latest.
    """

    def __init__(
        self,
        begin: Callable[[feeds.WatchRequest], FrameCall],
        session: WatchSession,
        on_frame: FrameHandler,
        *,
        heartbeat: float,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._begin = begin
        self._session = session
        self._on_frame = on_frame
        self._clock = clock
        self._lifecycle = Lifecycle(clock, lambda change: None)
        self._silence = 2 * heartbeat
        # Guards the two below, so that a call is cancelled by whoever ends the watch, or not begun.
        self._lock = threading.Lock()
        self._call: FrameCall | None = None
        self._stopping = False
        self._is_silent = False
        self._outage = Outage(_log)
        self._watchdog = Watchdog(clock, self._silence, self._fell_silent)
        # Only to interrupt a pause.
        self._inbox: Inbox[None] = Inbox(clock)
        self.future: WatchFuture = WatchFuture(self)
        # A daemon: a program may end without having closed its watches.
        self._thread = threading.Thread(target=self._run, name="pullstream-watch", daemon=True)

    @property
    def state(self) -> SubscriptionState:
        return self._lifecycle.state

    @property
    def resume_token(self) -> str:
        return self._session.resume_token

    def start(self) -> None:
        self._watchdog.start()
        start_or_undo(self._thread, self._watchdog.stop)

    def stop(self) -> None:
        """Handle no more frames, and end. Idempotent, never waits."""
        self._lifecycle.move(SubscriptionState.CLOSING)
        with self._lock:
            self._stopping = True
            call = self._call
        if call is not None:
            call.cancel()
        self._inbox.wake()

    def join(self) -> None:
        """Wait for the thread, which ends when the future is done."""
        self._thread.join()

    def runs_here(self) -> bool:
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
        self._watchdog.stop()
        self._inbox.close()
        self._lifecycle.move(SubscriptionState.CLOSED)
        if error is None:
            self.future.set_result(True)
        else:
            self.future.set_exception(error)

    def _handle(self, frame: Frame) -> None:
        try:
            self._on_frame(frame)
        except NotTaken:
            raise
        except BaseException:
            # To go on would be to lose the frame, or to handle it for ever.
            _log.exception("the handler of a watch raised an error, which ends the watch")
            raise

    def _frames(self) -> Iterator[tuple[feeds.Frame, Frame]]:
        """Frames to be handled, of this stream and of those that follow it."""
        while not self._stopping and not self._session.is_over:
            call = self._call or self._open()
            self._watchdog.waiting()
            try:
                wire = feeds.Frame.FromString(next(call))
            except StopIteration:
                self._broken(None)
            except grpc.RpcError as error:
                self._broken(to_error(error, "Watch"))
            except DecodeError as error:
                call.cancel()
                self._broken(Internal(f"the server sent what is not a frame: {error}"))
            else:
                self._watchdog.heard()
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
            # Whoever stopped it did not see this call.
            call.cancel()
        return call

    def _broken(self, cause: RpcError | None) -> None:
        """The stream ended: raise if that is the end, else wait for the moment to open another."""
        self._watchdog.heard()
        with self._lock:
            self._call = None
            if self._is_silent:
                self._is_silent = False
                cause = Unavailable(f"nothing came for {self._silence} s")
        if self._stopping:
            return
        pause = self._session.broken(cause)
        self._outage.failed(self._clock.monotonic(), cause)
        _log.info("stream broken (%s), opening another in %.1f s", cause or "closed", pause)
        again = self._clock.monotonic() + pause
        self._lifecycle.move(SubscriptionState.RECONNECTING, cause)
        while not self._stopping and self._clock.monotonic() < again:
            self._inbox.take(again)

    # ---- the watchdog's thread -----------------------------------------------------------------

    def _fell_silent(self) -> None:
        with self._lock:
            self._is_silent = self._call is not None
            call = self._call
        if call is not None:
            call.cancel()
