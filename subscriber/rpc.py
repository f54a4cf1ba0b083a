"""Calls on one channel: a stub for each unary RPC of the table, and our errors.

Only reads are tried again by themselves, and what bears an idempotency key. Any other write whose
reply was lost may have been carried out, and only its caller knows whether twice is once too many.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any, Final, Protocol, TypedDict, TypeVar

import grpc
from google.protobuf.message import Message

from protocol.clock import SYSTEM_CLOCK, Clock
from protocol.errors import (
    Aborted,
    RpcError,
    Unauthenticated,
    Unavailable,
    Unimplemented,
    from_rpc_error,
)
from protocol.rpcs import BY_METHOD

from .exceptions import SubscriberClosed, forked
from .refused_threads import abandon
from .request import routing_header
from .streaming.backoff import Backoff
from .streaming.fork_barrier import BARRIER

T = TypeVar("T")
Metadata = Sequence[tuple[str, "str | bytes"]]

DEFAULT_TIMEOUT = 60.0

# Pauses before the second attempt, and before the later ones at most, in seconds.
_FIRST_BACKOFF = 0.1
_LAST_BACKOFF = 5.0

# With less time than this left, in seconds, another try would only hide the error behind a
# DEADLINE_EXCEEDED.
_LEAST_TRY = 0.1

# How gRPC tells that no token could be had. It calls this UNAVAILABLE, though google-auth has by
# then tried again what can be tried again.
_NO_TOKEN = "Getting metadata from plugin failed"


class Retry(Protocol):
    """A policy of one's own, such as a `google.api_core.retry.Retry`: wraps a call into tries."""

    def __call__(self, func: Callable[[], T], /) -> Callable[[], T]: ...


class DefaultRetry(Enum):
    """Type of `DEFAULT_RETRY`."""

    READS = "calls that can be repeated and end with UNAVAILABLE or ABORTED, with growing pauses"


DEFAULT_RETRY: Final = DefaultRetry.READS


class CallOptions(TypedDict, total=False):
    """Keywords that every RPC method takes.

    retry: `DEFAULT_RETRY` tries again what can be repeated; None tries once; a
        `google.api_core.retry.Retry`, or any other wrapper of a function, is applied whatever the
        method.
    timeout: seconds for the whole call, all tries and pauses included. Default: 60. None: no limit.
    metadata: more gRPC metadata, as pairs.
    """

    retry: Retry | DefaultRetry | None
    timeout: float | None
    metadata: Metadata


class Rpcs:
    """The RPCs of `protocol.rpcs` on one channel. Thread-safe."""

    def __init__(self, channel: grpc.Channel, clock: Clock = SYSTEM_CLOCK) -> None:
        self.channel = channel
        self._clock = clock
        self._process = os.getpid()
        self._stubs: dict[str, Any] = {}

    def stub(self, method: str) -> Any:
        """gRPC's callable for the unary `method` (`"Pull"`).

        Made when first asked for. Two threads that ask at once may make two, which are equal.

        Raises:
            ForkedProcess: the channel was made before a fork, in the parent.
        """
        if os.getpid() != self._process:
            raise forked(self._process)
        stub = self._stubs.get(method)
        if stub is None:
            rpc = BY_METHOD[method]
            stub = self.channel.unary_unary(
                rpc.path,
                request_serializer=rpc.request.SerializeToString,
                response_deserializer=rpc.response.FromString,
            )
            self._stubs[method] = stub
        return stub

    def begin(
        self, method: str, request: Message, *, timeout: float | None, metadata: Metadata = ()
    ) -> Any:
        """Begin a unary call, and do not wait for it; gRPC's future.

        Raises:
            ValueError: the channel is closed.
            RuntimeError: gRPC needs a thread for the answer, and the process may have no more. The
                channel is no use any more, except for `call`.
        """
        stub = self.stub(method)
        try:
            return stub.future(request, timeout=timeout, metadata=metadata)
        except RuntimeError:
            abandon(self.channel)
            raise

    def call(
        self,
        method: str,
        request: Message,
        *,
        retry: Retry | DefaultRetry | None = DEFAULT_RETRY,
        timeout: float | None = DEFAULT_TIMEOUT,
        metadata: Metadata = (),
    ) -> Any:
        """Make a unary call and return its response; the keywords are those of `CallOptions`.

        Raises:
            RpcError: the subclass for the status with which the call (its last try) ended.
            SubscriberClosed: the client, or the channel that it was given, is closed.
        """
        stub = self.stub(method)
        headers = (*metadata, routing_header(request))
        clock = self._clock
        deadline = None if timeout is None else clock.monotonic() + timeout

        def attempt() -> Any:
            left = None if deadline is None else max(deadline - clock.monotonic(), 0.0)
            with errors_of(method), BARRIER.waiting():
                return stub(request, timeout=left, metadata=headers)

        if retry is DEFAULT_RETRY:
            return self._persist(attempt, deadline) if _repeatable(method, request) else attempt()
        return attempt() if retry is None else retry(attempt)()

    def _persist(self, attempt: Callable[[], Any], deadline: float | None) -> Any:
        """Try until it succeeds, fails for good, or the next try would begin too late."""
        backoff = Backoff(_FIRST_BACKOFF, _LAST_BACKOFF)
        while True:
            try:
                return attempt()
            except (Unavailable, Aborted):
                due = self._clock.monotonic() + backoff.next_pause()
                if deadline is not None and due + _LEAST_TRY > deadline:
                    raise
                wait_until(self._clock, due)


@contextmanager
def errors_of(method: str) -> Iterator[None]:
    """Around a call of `method`, or its beginning: what gRPC raises, as the errors of this package.

    Raises:
        RpcError: as `to_error`.
        SubscriberClosed: the channel is closed, for which gRPC has a ValueError.
    """
    try:
        yield
    except grpc.RpcError as error:
        raise to_error(error, method) from error
    except ValueError as error:
        raise SubscriberClosed(f"{method}: {error}") from error


def to_error(error: grpc.RpcError, method: str = "") -> RpcError:
    """The exception for a failed call of `method`. A token that cannot be had is Unauthenticated;
    of a call that only pullstream's broker has, Unimplemented says so."""
    converted = from_rpc_error(error)
    if isinstance(converted, Unimplemented) and _is_ours(method):
        return Unimplemented(
            f"this server has no {method}, which is a call of pullstream's broker "
            f"(the server said: {converted.message})"
        )
    if isinstance(converted, Unavailable) and converted.message.startswith(_NO_TOKEN):
        return Unauthenticated(converted.message)
    return converted


def _is_ours(method: str) -> bool:
    """Whether it is a call of a service that Google Cloud does not have."""
    return method in BY_METHOD and BY_METHOD[method].path.startswith("/pullstream.")


def _repeatable(method: str, request: Message) -> bool:
    reads = method.startswith(("Get", "List", "Read", "Test"))
    return reads or bool(getattr(request, "idempotency_key", ""))


def wait_until(clock: Clock, due: float) -> None:
    """Block until `due` on `clock`."""
    jumped = threading.Event()
    clock.add_waker(jumped.set)
    try:
        while (left := clock.timeout(due)) != 0.0:
            jumped.wait(left)
            jumped.clear()
    finally:
        clock.remove_waker(jumped.set)
