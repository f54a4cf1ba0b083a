"""The stream of one subscription, which is reopened whenever it breaks."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol

import grpc
from google.protobuf.message import DecodeError

from pullstream.lazy_messages import RawResponse
from pullstream.rpc.calls import StreamCall
from pullstream.runtime.outage_reporter import OutageReporter
from pullstream.runtime.retry_clock import Backoff
from pullstream_protocol.clock import Clock
from pullstream_protocol.errors import Cancelled, Internal, RpcError, Unavailable
from pullstream_protocol.inbox import Inbox
from pullstream_protocol.messages import pubsub_pb2 as pubsub

_log = logging.getLogger("pullstream.stream")

# Errors that a retry cannot fix: the request is wrong or not permitted.
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

# There may be no messages, and not every server answers pings. So a stream that was open for this
# many seconds counts as working, even if nothing arrived on it.
PROVEN_AFTER = 10.0

# When a block of this size in bytes or more is freed, glibc checks whether the heap can shrink.
_LARGE = 64 * 1024

# The bytes that gRPC buffers of a stream ahead of its reader (`endpoint.WINDOW_BYTES`).
_BLOCK_BYTES = 4 * 1024 * 1024


Response = pubsub.StreamingPullResponse | RawResponse


class ReceivedResponse(NamedTuple):
    """A response and its size.

    Attributes:
        response: The parsed response.
        size: Length of the encoded response in bytes.
    """

    response: Response
    size: int


class StreamListener(Protocol):
    """Receives events of the stream, on the thread that reads it."""

    def stream_opened(self) -> None:
        """Handle the start of a stream, which the server may not have answered yet."""

    def stream_received(self) -> None:
        """Handle the first response of a stream, which shows that the stream works."""

    def stream_broken(self, cause: RpcError | None) -> None:
        """Handle the end of a stream (None: with OK), which will be reopened."""


class StreamEnded(Cancelled):
    """This client closed the stream; there is no error."""

    def __init__(self) -> None:
        super().__init__("the stream was closed")


class MallocHint:
    """Makes the process keep the memory of large finished responses for the next ones.

    glibc returns the end of a heap to the system when 128 KiB of it are free, or twice the size of
    the largest block that was ever mapped separately and freed (mallopt(3), M_MMAP_THRESHOLD).
    Messages of 10 KB that are acknowledged together exceed that. Their memory was returned, and
    allocated again page by page for the next messages, which took a sixth of their CPU time. This
    class therefore allocates and frees such a block once. Then up to twice its size stays with each
    heap. No page of the block is touched. If MALLOC_TRIM_THRESHOLD_ is set, or malloc is not
    glibc's, this has no effect.
    """

    def __init__(self) -> None:
        self._keeps = False

    def received(self, size: int) -> None:
        """Note a response of `size` bytes. Called on the reader's thread."""
        if size >= _LARGE and not self._keeps:
            self._keeps = True
            bytearray(_BLOCK_BYTES)


class ResumingStream:
    """A streaming pull that resumes: the "bidi rpc" of google.api_core.bidi.BackgroundConsumer.

    `recv`, on the consumer's thread, does all the work: it opens, reads, waits and reopens. Any
    thread may call `send`, `reset` and `close`. After an error with a code in TERMINAL_CODES,
    `recv` raises that error. A stream that the server ends in any other way, also with OK, is
    reopened after a pause, which grows while streams keep breaking.

    Args:
        clock: Measures the pauses.
        start: Begins the RPC with its first request.
        first_request: Makes the request that opens a stream; called for each stream.
        listener: Receives the events of the stream.
        gives_up_at: Returns, after a failed attempt at a time, when to make the last attempt. If it
            has been made, `recv` raises its error. Default: never.
        parse: Parses a response. RawResponse does not parse its messages.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        start: Callable[[pubsub.StreamingPullRequest], StreamCall],
        first_request: Callable[[], pubsub.StreamingPullRequest],
        listener: StreamListener,
        gives_up_at: Callable[[float], float] = lambda now: math.inf,
        parse: Callable[[bytes], Response] = pubsub.StreamingPullResponse.FromString,
    ) -> None:
        self._clock = clock
        self._parse = parse
        self._start = start
        self._first_request = first_request
        self._listener = listener
        self._malloc_hint = MallocHint()
        self._outage = OutageReporter(_log)
        self._opened_at = self._worked_until = clock.monotonic()
        self._backoff = Backoff(0.1, 10.0)
        self._gives_up_at = gives_up_at
        self._lock = threading.Lock()
        self._call: StreamCall | None = None
        # Whether the present stream has received a response, and whether it has received messages.
        self._is_answered = False
        self._is_proven = False
        # Whether `close`, and whether `abort`, was called.
        self._closing = self._aborting = False
        self._reset_cause: RpcError | None = None
        # Used only to interrupt a pause.
        self._inbox: Inbox[None] = Inbox(clock)

    # ---- the interface for BackgroundConsumer --------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Always True: only `recv` reports the end, so that there is one place that ends it."""
        return True

    def add_done_callback(self, callback: Callable[[object], None]) -> None:
        """Ignore the callback, because the stream is always active; see `is_active`."""

    def open(self) -> None:
        """Do nothing: `recv` opens a stream whenever there is none."""

    def recv(self) -> ReceivedResponse:
        """Return the next response, from this stream or from its replacement.

        Raises:
            StreamEnded: This client closed the stream.
            RpcError: The stream ended with an error that a retry cannot fix.
        """
        try:
            return self._next_response()
        except BaseException:
            # The stream has ended for good, so no pause will need a wake-up.
            self._inbox.close()
            raise

    def close(self) -> None:
        """End the stream for good. Half-closes it, so that its leases continue.

        `recv` returns the remaining responses of the server, then raises StreamEnded. Idempotent.
        """
        with self._lock:
            self._closing = True
            if self._call is not None:
                self._call.half_close()
        self._inbox.wake()

    # ---- for the manager -----------------------------------------------------------------------

    def last_worked(self, now: float) -> float:
        """Return when the stream last worked: `now` if it works.

        A stream works if it has received messages or has been open for PROVEN_AFTER seconds. Before
        the first one works, this is the time of the creation.
        """
        with self._lock:
            if self._call is not None and (
                self._is_proven or now - self._opened_at >= PROVEN_AFTER
            ):
                return now
            return self._worked_until

    def abort(self) -> None:
        """End the stream for good, without waiting until the server ends its side."""
        self.close()
        with self._lock:
            self._aborting = True
            call = self._call
        if call is not None:
            call.cancel()

    def discard(self) -> None:
        """End the call and read its end. Called on the reader's thread when it stops reading."""
        self.abort()
        with self._lock:
            call, self._call = self._call, None
        if call is not None:
            _see_the_end_of(call)

    def send(self, request: pubsub.StreamingPullRequest) -> None:
        """Send a request on the present stream; dropped if there is no stream."""
        with self._lock:
            if self._call is not None:
                self._call.send(request)

    def reset(self, why: str, reconnect: Callable[[], None] = lambda: None) -> None:
        """Cancel a stream that no longer works, so that `recv` opens another.

        Args:
            why: The reason, for the log and for `stream_broken`.
            reconnect: Called before, so that the next stream has another connection.
        """
        with self._lock:
            call = self._call
            self._reset_cause = None if call is None else Unavailable(why)
        reconnect()
        if call is not None:
            call.cancel()

    # ---- the consumer's thread -----------------------------------------------------------------

    def _next_response(self) -> ReceivedResponse:
        while True:
            if self._closing and self._call is None:
                raise StreamEnded
            call = self._call or self._open()
            try:
                encoded = next(call)
                # Parsed here and not by gRPC, for two reasons: gRPC's thread serves the other
                # calls, and flow control needs the length, which would be computed again.
                arrival = ReceivedResponse(self._parse(encoded), len(encoded))
                self._malloc_hint.received(arrival.size)
            except StopIteration:
                self._broken(None)
            except RpcError as error:
                self._broken(error)
            except DecodeError as error:
                call.cancel()
                _see_the_end_of(call)
                self._broken(Internal(f"the server sent an invalid response: {error}"))
            else:
                self._received(arrival)
                return arrival

    def _open(self) -> StreamCall:
        call = self._start(self._first_request())
        with self._lock:
            self._call = call
            self._is_answered = self._is_proven = False
            self._opened_at = self._clock.monotonic()
            if self._closing:
                # `close` or `abort` ran after the call began, and did not see it. The server may
                # have leased messages to this call already. After a half-close they arrive, and
                # the shutdown returns them. After a cancellation their leases would have to expire.
                call.half_close()
            is_aborted = self._aborting
        if is_aborted:
            call.cancel()
        self._listener.stream_opened()
        return call

    def _received(self, arrival: ReceivedResponse) -> None:
        if not self._is_proven and arrival.response.received_messages:
            # The answer to a ping is not enough: a server may send it and then end each stream.
            self._is_proven = True
            self._works()
        if not self._is_answered:
            self._is_answered = True
            self._listener.stream_received()

    def _broken(self, cause: RpcError | None) -> None:
        """Handle the end of a stream: raise if it is final, else wait until the next attempt."""
        was_silent = False
        with self._lock:
            self._call = None
            # Its connection may be closed before the call is cancelled.
            if isinstance(cause, (Cancelled, Unavailable)) and self._reset_cause is not None:
                cause = self._reset_cause
                was_silent = not self._is_answered
            self._reset_cause = None
        if self._closing:
            raise StreamEnded
        if cause is not None and cause.grpc_status_code in TERMINAL_CODES:
            raise cause
        now = self._clock.monotonic()
        has_lasted = now - self._opened_at >= PROVEN_AFTER and not was_silent
        if self._is_proven or has_lasted:
            # It worked until now, even if it received no message.
            self._worked_until = now
            self._works()
        else:
            self._outage.failed(now, cause)
        last = self._gives_up_at(now)
        if now >= last:
            raise cause or Unavailable("the server closes every stream immediately")
        again = min(now + self._backoff.next_pause(), last)
        _log.info(
            "stream broken (%s), opening another in %.1f s", cause or "closed with OK", again - now
        )
        self._listener.stream_broken(cause)
        while not self._closing and self._clock.monotonic() < again:
            self._inbox.take(again)

    def _works(self) -> None:
        self._backoff.reset()
        self._outage.over()


def _see_the_end_of(call: StreamCall) -> None:
    """Read the rest of a cancelled call: gRPC frees the call when everything has been read."""
    while True:
        try:
            next(call)
        except (StopIteration, RpcError):
            return
