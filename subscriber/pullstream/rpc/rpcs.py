"""Unary calls on one channel, with retries and with this package's errors.

By default, only calls that read, and calls with an idempotency key, are repeated. Any other call
whose reply was lost may have been carried out, and only its caller knows whether a repetition is
harmful.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from threading import get_ident
from typing import Any, Final, Protocol, TypedDict, TypeVar

import grpc
from google.protobuf.message import Message

from pullstream.exceptions import SubscriberClosed
from pullstream.runtime.fork_barrier import BARRIER
from pullstream.runtime.process import ForkCheck, left_at_exit
from pullstream.runtime.retry_clock import Backoff
from pullstream_protocol.call_lock import InterruptedCall
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock
from pullstream_protocol.errors import (
    Aborted,
    InvalidArgument,
    NotFound,
    RpcError,
    Unavailable,
    Unimplemented,
    from_rpc_error,
)
from pullstream_protocol.rpcs import BY_METHOD, IDEMPOTENCY_KEY

from .abandoned_channels import abandon, has_its_thread
from .attempts import Attempts
from .calls import PendingCall
from .connection import Connection
from .local_errors import TokenUnavailable, local_error
from .named_errors import LIST_TIMEOUT, names_in, search_similar
from .request import routing_header

_log = logging.getLogger("pullstream.dispatcher")

T = TypeVar("T")
Replace = Callable[[grpc.Channel, Callable[[grpc.Channel], object]], None]
Metadata = Sequence[tuple[str, "str | bytes"]]

DEFAULT_TIMEOUT = 60.0

# The errors after which a call is repeated, if a second execution is harmless.
_REPEATED_ERRORS = (Unavailable, Aborted)

# Seconds: the pause before the second attempt, and the longest pause before later ones.
_FIRST_BACKOFF = 0.1
_LAST_BACKOFF = 5.0

# Seconds. With less time left than this, another attempt would only replace the error with a
# DEADLINE_EXCEEDED.
_LEAST_TRY = 0.1

# Time limit of a call that `begin_or_wait` waits for, in seconds.
_WAITED_CALL_TIMEOUT = 5.0


class Retry(Protocol):
    """A user's retry policy, such as a `google.api_core.retry.Retry`. Wraps a function."""

    def __call__(self, func: Callable[[], T], /) -> Callable[[], T]:
        """Return a function that calls `func` until it succeeds or the policy gives up."""


class DefaultRetry(Enum):
    """The type of `DEFAULT_RETRY`."""

    READS = "calls that can be repeated and end with UNAVAILABLE or ABORTED, with growing pauses"


DEFAULT_RETRY: Final = DefaultRetry.READS


class CallOptions(TypedDict, total=False):
    """Keywords of every RPC method.

    Attributes:
        retry: `DEFAULT_RETRY` (default) repeats calls that can be repeated. None makes one attempt.
            A `google.api_core.retry.Retry`, or another function that wraps a function, is applied
            to every method.
        timeout: Seconds for the whole call, including all attempts and pauses. Default: 60. None:
            no limit.
        metadata: Additional gRPC metadata, as pairs.
    """

    retry: Retry | DefaultRetry | None
    timeout: float | None
    metadata: Metadata


class ListOptions(CallOptions, total=False):
    """Keywords of RPC methods that return a list.

    Attributes:
        page_size: Most items that the server sends at a time. Default: the server chooses.
        page_token: The `next_page_token` of an earlier response, where the list begins.
    """

    page_size: int
    page_token: str


class Rpcs:
    """The RPCs of `pullstream_protocol.rpcs` on one channel. Thread-safe.

    A channel whose server falls silent is replaced; see `Connection`.

    Args:
        channel: The channel.
        clock: Measures time.
        replace: Opens another channel for a silent one, as `ChannelPool.replace` does. None: the
            channel is never replaced.
    """

    def __init__(
        self,
        channel: grpc.Channel,
        clock: Clock = SYSTEM_CLOCK,
        replace: Replace | None = None,
    ) -> None:
        self.clock = clock
        self._replace = replace
        self._fork = ForkCheck()
        self._connection = Connection(channel, clock, self._reconnect)
        # Identifiers of the threads that are in `begin`.
        self._beginning: set[int] = set()

    @property
    def channel(self) -> grpc.Channel:
        """The present channel."""
        return self._connection.channel

    @property
    def next_check(self) -> float | None:
        """When a thread that waits for calls should call `check_if_due`; None if no call waits."""
        return None if self._replace is None else self._connection.next_check()

    def check_if_due(self) -> None:
        """Find out whether the server still answers, if calls have waited for it for long."""
        if self._replace is not None:
            self._connection.check_if_due()

    def check(self) -> None:
        """Find out whether the server still answers, because a stream to it has fallen silent."""
        if self._replace is not None:
            self._connection.check()

    def _reconnect(self, silent: Connection) -> None:
        def use(channel: grpc.Channel) -> None:
            self._connection = Connection(channel, self.clock, self._reconnect)

        if self._replace is not None:
            self._replace(silent.channel, use)

    def stub(self, method: str, *, serialized: bool = False) -> Any:
        """Return the callable for the unary `method`, such as `"Pull"`, like gRPC's.

        It is created at the first use. Two threads at the same time may create two, which are
        equivalent.

        Args:
            method: Name of the RPC.
            serialized: Whether the callable takes and returns bytes instead of messages.

        Raises:
            ForkedProcess: The parent of this fork created the channel.
        """
        self._fork.refuse_child()
        connection = self._connection
        stub = connection.stubs.get((method, serialized))
        if stub is None:
            rpc = BY_METHOD[method]
            call = connection.channel.unary_unary(
                rpc.path,
                request_serializer=None if serialized else rpc.request.SerializeToString,
                response_deserializer=None if serialized else rpc.response.FromString,
            )

            def renew() -> _Stub | None:
                is_replaced = connection is not self._connection
                return self.stub(method, serialized=serialized) if is_replaced else None

            stub = connection.stubs[method, serialized] = _Stub(connection, call, renew)
        return stub

    def begin(
        self,
        method: str,
        request: Message | bytes,
        *,
        timeout: float | None,
        metadata: Metadata = (),
        compression: grpc.Compression | None = None,
    ) -> Any:
        """Begin a unary call without waiting for it; return gRPC's future.

        Args:
            method: Name of the RPC.
            request: The request. If it is serialized, so is the response.
            timeout: Seconds for the call. None: no limit.
            metadata: Additional gRPC metadata.
            compression: How to compress the request. None: as the channel does.

        Raises:
            ValueError: The channel is closed.
            RuntimeError: gRPC needs a thread for the answer, and cannot start one. From now on,
                only `call` works on the channel.
            InterruptedCall: A signal handler has interrupted this method. gRPC may hold a lock.
        """
        stub = self.stub(method, serialized=isinstance(request, bytes))
        here = get_ident()
        if here in self._beginning:
            raise InterruptedCall
        try:
            self._beginning.add(here)
            return BARRIER.begin(
                lambda: stub.future(
                    request, timeout=timeout, metadata=metadata, compression=compression
                )
            )
        except InterruptedCall:
            raise
        except RuntimeError:
            abandon(self.channel)
            raise
        finally:
            self._beginning.discard(here)

    def call(
        self,
        method: str,
        request: Message,
        *,
        retry: Retry | DefaultRetry | None = DEFAULT_RETRY,
        timeout: float | None = DEFAULT_TIMEOUT,
        metadata: Metadata = (),
    ) -> Any:
        """Make a unary call and return its response.

        Args:
            method: Name of the RPC.
            request: The request.
            retry: See `CallOptions`.
            timeout: See `CallOptions`.
            metadata: See `CallOptions`.

        Raises:
            RpcError: The subclass for the status with which the last attempt ended.
            SubscriberClosed: The client, or the user's channel, is closed.
        """
        stub = self.stub(method)
        headers = (*metadata, routing_header(request))
        clock = self.clock
        deadline = None if timeout is None else clock.monotonic() + timeout
        attempts = None if BY_METHOD[method].reads else Attempts()

        def attempt() -> Any:
            left = None if deadline is None else max(deadline - clock.monotonic(), 0.0)
            with errors_of(method, attempts), BARRIER.waiting():
                return stub(request, timeout=left, metadata=headers)

        try:
            if retry is DEFAULT_RETRY:
                return self._persist(attempt, deadline, repeated_errors(method, request, metadata))
            return attempt() if retry is None else retry(attempt)()
        except (NotFound, InvalidArgument) as error:
            self.name_resource(error, method, names_in(request), metadata)
            raise

    def name_resource(
        self, error: RpcError, method: str, meant: Iterable[str], metadata: Metadata = ()
    ) -> None:
        """Add the kind and the full name of a missing resource to an error, and similar ids.

        Args:
            error: The error of a call.
            method: Name of its RPC.
            meant: The full names in its request.
            metadata: Its additional metadata.
        """
        search = search_similar(error, method, meant)
        if search is not None:
            # The caller may lack the right to list.
            with suppress(grpc.RpcError, ValueError), BARRIER.waiting():
                headers = (*metadata, routing_header(search.request))
                stub = self.stub(search.method)
                search.add_to_error(stub(search.request, timeout=LIST_TIMEOUT, metadata=headers))

    def _persist(
        self,
        attempt: Callable[[], Any],
        deadline: float | None,
        repeated: tuple[type[RpcError], ...],
    ) -> Any:
        """Repeat the call until it succeeds, fails for good, or has no time for another attempt."""
        repetition = Repetition(deadline)
        while True:
            try:
                return attempt()
            except repeated:
                due = repetition.next_attempt(self.clock.monotonic())
                if due is None:
                    raise
                wait_until(self.clock, due)


class _Stub:
    """A callable of gRPC that tells the connection when its calls begin and end.

    Args:
        connection: The connection.
        call: The callable.
        renew: Returns the stub of the new connection, if this one was replaced; else None.
    """

    def __init__(
        self, connection: Connection, call: Any, renew: Callable[[], _Stub | None]
    ) -> None:
        self._connection = connection
        self._call = call
        self._renew = renew

    def __call__(self, request: Any, **options: Any) -> Any:
        token = self._connection.began()
        code: grpc.StatusCode | None = None
        try:
            response = self._call(request, **options)
            code = grpc.StatusCode.OK
        except grpc.RpcError as error:
            code = error.code() if isinstance(error, grpc.Call) else None
            raise
        except ValueError:
            # The channel is closed.
            renewed = self._renew()
            if renewed is None:
                raise
            return renewed(request, **options)
        finally:
            self._connection.ended(token, code)
        return response

    def future(self, request: Any, **options: Any) -> Any:
        token = self._connection.began()
        try:
            future = self._call.future(request, **options)
        except ValueError:
            self._connection.ended(token, None)
            renewed = self._renew()
            if renewed is None:
                raise
            return renewed.future(request, **options)
        except BaseException:
            self._connection.ended(token, None)
            raise
        future.add_done_callback(lambda done: self._connection.ended(token, done.code()))
        return future


class Repetition:
    """The times of the repeated attempts of one call.

    Args:
        deadline: The end of the call on the monotonic clock. None: no limit.
    """

    def __init__(self, deadline: float | None) -> None:
        self._deadline = deadline
        self._backoff = Backoff(_FIRST_BACKOFF, _LAST_BACKOFF)

    def next_attempt(self, now: float) -> float | None:
        """Return the time of the next attempt, or None if the call has no time for another."""
        due = now + self._backoff.next_pause()
        too_late = self._deadline is not None and due + _LEAST_TRY > self._deadline
        return None if too_late else due


@contextmanager
def errors_of(method: str, attempts: Attempts | None = None) -> Iterator[None]:
    """Convert the errors of gRPC inside this context, which surrounds a call of `method`.

    Args:
        method: Name of the RPC.
        attempts: The attempts of the call, one of which this is.

    Raises:
        RpcError: See `to_error`.
        SubscriberClosed: The channel is closed, for which gRPC raises a ValueError.
    """
    try:
        yield
    except grpc.RpcError as error:
        converted = to_error(error, method)
        if attempts is not None:
            attempts.failed(converted)
        # gRPC's error says nothing more.
        raise converted from None
    except UnicodeError:
        # Of the metadata. It is a ValueError.
        raise
    except ValueError as error:
        raise SubscriberClosed(f"{method}: {error}") from error


def to_error(error: grpc.RpcError, method: str = "") -> RpcError:
    """Return the exception for a failed call of `method`.

    If this side has ended the call, see `local_error`. If another server does not have a
    call of pullstream's broker, the text of Unimplemented says so.
    """
    converted = from_rpc_error(error)
    if isinstance(converted, Unimplemented) and _is_ours(method):
        return Unimplemented(
            f"this server has no {method}, which is a call of pullstream's broker "
            f"(the server said: {converted.message})"
        )
    return local_error(converted)


def _is_ours(method: str) -> bool:
    """Return whether the call belongs to a service that Google Cloud does not have."""
    return method in BY_METHOD and BY_METHOD[method].path.startswith("/pullstream.")


def repeated_errors(
    method: str, request: Message, metadata: Metadata = ()
) -> tuple[type[RpcError], ...]:
    """Return the errors after which the call is repeated."""
    has_key = bool(getattr(request, "idempotency_key", ""))
    has_key |= any(key == IDEMPOTENCY_KEY for key, _ in metadata)
    if has_key or BY_METHOD[method].reads:
        return _REPEATED_ERRORS
    # Without a token the call was not sent, so its repetition is the first execution.
    return (TokenUnavailable,)


def earliest(*times: float | None) -> float | None:
    """Return the earliest of these times; None is never."""
    return min((time for time in times if time is not None), default=None)


def wait_until(clock: Clock, due: float) -> None:
    """Block until the time `due` on `clock`."""
    jumped = threading.Event()
    clock.add_waker(jumped.set)
    try:
        while (left := clock.timeout(due)) != 0.0:
            jumped.wait(left)
            jumped.clear()
    finally:
        clock.remove_waker(jumped.set)


def begin_or_wait(
    rpcs: Rpcs,
    method: str,
    request: Any,
    timeout: float | None,
    metadata: Metadata,
    compression: grpc.Compression | None = None,
) -> PendingCall:
    """Begin a unary call; if no thread is available for that, make the call and wait for it.

    A call that failed to begin may have reached the server, and is repeated to get its answer. So
    use this only for calls that may be made twice, such as acknowledgements.

    Args:
        rpcs: The calls of a channel.
        method: Name of the RPC.
        request: The request. If it is serialized, so is the response.
        timeout: Seconds for the call; at most 5 if the calling thread waits. None: no limit, or 5.
        metadata: Additional gRPC metadata.
        compression: How to compress the request. None: as the channel does.
    """
    if has_its_thread(rpcs.channel):
        try:
            call: PendingCall = rpcs.begin(
                method, request, timeout=timeout, metadata=metadata, compression=compression
            )
            return call
        except InterruptedCall:
            raise
        except RuntimeError as error:
            # The channel is abandoned now. The exit of a program needs no warning.
            if "interpreter shutdown" not in str(error):
                _log.warning("%s; requests are sent one at a time from now on", error)
    stub = rpcs.stub(method, serialized=isinstance(request, bytes))
    waited = left_at_exit(min(timeout or _WAITED_CALL_TIMEOUT, _WAITED_CALL_TIMEOUT))
    try:
        with BARRIER.waiting():
            response = stub(request, timeout=waited, metadata=metadata, compression=compression)
    except grpc.RpcError as error:
        return _EndedCall(error)
    return _EndedCall(None, response)


class _EndedCall:
    """A call that has ended already.

    Args:
        error: The error of the call, or None.
        response: The response of a call without an error.
    """

    def __init__(self, error: grpc.RpcError | None, response: Any = None) -> None:
        self._error = error
        self._response = response

    def done(self) -> bool:
        """Return True."""
        return True

    def add_done_callback(self, callback: Any) -> None:
        """Call `callback` with this call, at once."""
        callback(self)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error of the call, or None."""
        return self._error

    def result(self) -> Any:
        """Return the response of a call without an error."""
        return self._response

    def cancel(self) -> bool:
        """Return False: the call is over."""
        return False
