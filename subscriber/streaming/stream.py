"""The stream of one subscription, opened again whenever it breaks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol

import grpc
from google.protobuf.message import DecodeError

from protocol.clock import Clock
from protocol.errors import Cancelled, Internal, RpcError, Unavailable
from protocol.messages import columns_pb2 as columns
from protocol.messages import pubsub_pb2 as pubsub
from subscriber.outage import Outage

from .backoff import Backoff
from .heap import Heap
from .inbox import Inbox
from .stream_call import StreamCall

_log = logging.getLogger("pullstream.stream")

# Trying again cannot help: the request itself, or the right to make it, is at fault.
TERMINAL_CODES = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.DATA_LOSS,
    }
)

# There may be no messages, and not every server answers pings. A stream that stood for so many
# seconds works, whatever came.
PROVEN_AFTER = 10.0


Response = pubsub.StreamingPullResponse | columns.ResponseColumns


class Arrival(NamedTuple):
    """A response, and its length in bytes."""

    response: Response
    size: int


class StreamListener(Protocol):
    """Told what happens to the stream, on the thread that reads it."""

    def stream_opened(self) -> None: ...

    def stream_received(self) -> None:
        """The first response after an opening has come: the stream works."""

    def stream_broken(self, cause: RpcError | None) -> None:
        """The stream ended (None: with OK) and will be opened again."""


class StreamEnded(Cancelled):
    """The stream was closed from our side; nothing is wrong."""

    def __init__(self) -> None:
        super().__init__("the stream was closed")


class ResumingStream:
    """A streaming pull that resumes: the "bidi rpc" of google.api_core.bidi.BackgroundConsumer.

    `recv`, on the consumer's thread, is where everything happens: it opens, reads, waits and opens
    again. Any thread may `send`, `reset` and `close`. Codes in TERMINAL_CODES end it: `recv` raises
    that error. A stream that the server ends in any other way, also with OK, is opened again after
    a pause that grows while it keeps breaking.

    Args:
        start: begin the RPC with its first request.
        give_up_after: seconds without a working stream after which `recv` raises what the last
            attempt ended with. None: never.
        first_request: makes the request that opens a stream, anew for each opening.
        parse: reads a response; ResponseColumns leaves its messages as they are.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        start: Callable[[pubsub.StreamingPullRequest], StreamCall],
        first_request: Callable[[], pubsub.StreamingPullRequest],
        listener: StreamListener,
        give_up_after: float | None = None,
        parse: Callable[[bytes], Response] = pubsub.StreamingPullResponse.FromString,
    ) -> None:
        self._clock = clock
        self._parse = parse
        self._start = start
        self._first_request = first_request
        self._listener = listener
        self._give_up_after = give_up_after
        self._backoff = Backoff(0.1, 10.0)
        self._heap = Heap()
        self._outage = Outage(_log)
        # Since when there is no stream that works.
        self._down_since = clock.monotonic()
        self._opened_at = self._down_since
        self._lock = threading.Lock()
        self._call: StreamCall | None = None
        # Of the present stream: whether anything has come, and whether messages have.
        self._is_answered = False
        self._is_proven = False
        self._closing = False
        self._reset_cause: RpcError | None = None
        # Only to interrupt a pause.
        self._inbox: Inbox[None] = Inbox(clock)

    # ---- what BackgroundConsumer asks for ------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Always: that it is over is told by `recv` alone, so that there is one place to end it."""
        return True

    def add_done_callback(self, callback: Callable[[object], None]) -> None:
        """Not needed, as it is never inactive without being closed; see `is_active`."""

    def open(self) -> None:
        """Nothing yet: `recv` opens whenever there is no stream."""

    def recv(self) -> Arrival:
        """The next response, from this stream or one that replaces it.

        Raises:
            StreamEnded: it was closed from our side.
            RpcError: it ended with an error that another attempt cannot mend.
        """
        try:
            return self._next_response()
        except BaseException:
            # It is over: nothing is left to be woken for.
            self._inbox.close()
            raise

    def close(self) -> None:
        """End the stream for good: half-close it, so that the leases it holds go on.

        `recv` hands out what the server has still sent, then raises StreamEnded. Idempotent.
        """
        with self._lock:
            self._closing = True
            if self._call is not None:
                self._call.half_close()
        self._inbox.wake()

    # ---- for the manager -----------------------------------------------------------------------

    def abort(self) -> None:
        """End the stream for good without waiting for the server to end its side."""
        self.close()
        with self._lock:
            call = self._call
        if call is not None:
            call.cancel()

    def discard(self) -> None:
        """On the reader's thread, when it will read no more: end the call, and see its end."""
        self.abort()
        with self._lock:
            call, self._call = self._call, None
        if call is not None:
            _see_the_end_of(call)

    def send(self, request: pubsub.StreamingPullRequest) -> None:
        """Send on the stream as it is now; dropped if there is none."""
        with self._lock:
            if self._call is not None:
                self._call.send(request)

    def reset(self, why: str) -> None:
        """Tear down a stream that is no use any more, and open another."""
        with self._lock:
            call = self._call
            self._reset_cause = None if call is None else Unavailable(why)
        if call is not None:
            call.cancel()

    # ---- the consumer's thread -----------------------------------------------------------------

    def _next_response(self) -> Arrival:
        while True:
            if self._closing and self._call is None:
                raise StreamEnded
            call = self._call or self._open()
            try:
                encoded = next(call)
                # Parsed here and not by gRPC: its thread has the other calls to see to, and the
                # length, which flow control needs, would have to be computed again.
                arrival = Arrival(self._parse(encoded), len(encoded))
                self._heap.received(arrival.size)
            except StopIteration:
                self._broken(None)
            except RpcError as error:
                self._broken(error)
            except DecodeError as error:
                call.cancel()
                _see_the_end_of(call)
                self._broken(Internal(f"the server sent what is not a response: {error}"))
            else:
                self._received(arrival)
                return arrival

    def _open(self) -> StreamCall:
        call = self._start(self._first_request())
        with self._lock:
            self._call = call
            self._is_answered = self._is_proven = False
            self._opened_at = self._clock.monotonic()
            too_late = self._closing
        if too_late:
            # Whoever closed it did not see this call.
            call.cancel()
        self._listener.stream_opened()
        return call

    def _received(self, arrival: Arrival) -> None:
        if not self._is_proven and arrival.response.received_messages:
            # An answer to a ping says less: a server may give that, and end each stream after it.
            self._is_proven = True
            self._works()
        if not self._is_answered:
            self._is_answered = True
            self._listener.stream_received()

    def _broken(self, cause: RpcError | None) -> None:
        """The stream ended: raise if that is the end, else wait for the moment to open another."""
        was_silent = False
        with self._lock:
            self._call = None
            if isinstance(cause, Cancelled) and self._reset_cause is not None:
                cause = self._reset_cause
                was_silent = not self._is_answered
            self._reset_cause = None
        if self._closing:
            raise StreamEnded
        if cause is not None and cause.grpc_status_code in TERMINAL_CODES:
            raise cause
        now = self._clock.monotonic()
        stood = now - self._opened_at >= PROVEN_AFTER and not was_silent
        if self._is_proven or stood:
            # It did work until now, be it that no message came.
            self._works()
        else:
            self._outage.failed(now, cause)
        again = now + self._backoff.next_pause()
        if self._give_up_after is not None:
            last = self._down_since + self._give_up_after
            if now >= last:
                raise cause or Unavailable("the server closes every stream at once")
            again = min(again, last)
        _log.info(
            "stream broken (%s), opening another in %.1f s", cause or "closed with OK", again - now
        )
        self._listener.stream_broken(cause)
        while not self._closing and self._clock.monotonic() < again:
            self._inbox.take(again)

    def _works(self) -> None:
        self._backoff.reset()
        self._outage.over()
        self._down_since = self._clock.monotonic()


def _see_the_end_of(call: StreamCall) -> None:
    """Read what is left of a cancelled call: gRPC frees it when all of it has been read."""
    while True:
        try:
            next(call)
        except (StopIteration, RpcError):
            return
