"""Unary calls on an event loop, with the retries and errors of `Rpcs.call`."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from pullstream_protocol.errors import InvalidArgument, NotFound, RpcError
from pullstream_protocol.rpcs import BY_METHOD

from .attempts import Attempts
from .named_errors import names_in
from .rpcs import (
    DEFAULT_RETRY,
    DEFAULT_TIMEOUT,
    DefaultRetry,
    Metadata,
    Repetition,
    Retry,
    Rpcs,
    repeated_errors,
)
from .sansio import Sleep, Steps, UnaryCall, naming, run_async


async def call_async(
    rpcs: Rpcs,
    method: str,
    request: Message,
    *,
    retry: Retry | DefaultRetry | None = DEFAULT_RETRY,
    timeout: float | None = DEFAULT_TIMEOUT,
    metadata: Metadata = (),
) -> Any:
    """Make a unary call on the running event loop; return its response.

    A cancelled task withdraws its call.

    Args:
        rpcs: The calls of a channel.
        method: Name of the RPC.
        request: The request.
        retry: See `CallOptions`. A user's policy wraps a coroutine function, as
            `google.api_core.retry.AsyncRetry` does.
        timeout: See `CallOptions`.
        metadata: See `CallOptions`.

    Raises:
        RpcError: The subclass for the status with which the last attempt ended.
        SubscriberClosed: The client, or the user's channel, is closed.
    """
    clock = rpcs.clock
    deadline = None if timeout is None else clock.monotonic() + timeout
    known = None if BY_METHOD[method].reads else Attempts()

    def attempt() -> Steps[Any]:
        left = None if deadline is None else max(deadline - clock.monotonic(), 0.0)
        call = UnaryCall(method, request, left, metadata=metadata)
        try:
            yield call
        except RpcError as error:
            if known is not None:
                known.failed(error)
            raise
        return call.response

    def attempts() -> Steps[Any]:
        repetition = Repetition(deadline)
        repeated = repeated_errors(method, request, metadata)
        while True:
            try:
                return (yield from attempt())
            except repeated:
                due = repetition.next_attempt(clock.monotonic())
                if due is None:
                    raise
            yield Sleep(due)

    async def attempt_once() -> Any:
        return await run_async(attempt(), rpcs, clock)

    try:
        if retry is DEFAULT_RETRY:
            return await run_async(attempts(), rpcs, clock)
        return await (attempt_once() if retry is None else retry(attempt_once)())
    except (NotFound, InvalidArgument) as error:
        await run_async(naming(error, method, names_in(request), metadata), rpcs, clock)
        raise
