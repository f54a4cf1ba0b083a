"""gRPC handlers for every row of protocol.rpcs, from plain service objects.

A service is an object with one method for each RPC it offers, named in snake case. A unary method
takes the request, and `peer` if it wants to know who calls, and returns the response. What it must
not keep other calls waiting with is done before by a coroutine beside it, `prepare_` and its name;
what is to happen before its answer leaves is awaited by one named `finish_`.
A method that has to wait, or to know whether its answer left, takes the call's context and writes
the response itself. A streaming one takes the context only. Whatever a method raises of
protocol.errors becomes the status of the call. Faults get at the calls here, so that no service
knows of them.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from emulator.faults import Faults, StreamClosed
from emulator.storage.barrier import ConfirmingStream, carry_out
from protocol import errors
from protocol.rpcs import RPCS, Kind, Rpc

from .context import Context

if TYPE_CHECKING:
    from emulator.storage.storage import Storage

_log = logging.getLogger("pullstream.emulator")

# Longest text of a status, in characters. It travels in a header and quotes what the caller sent.
# Clients refuse more than 8 KiB of headers, with an error that they take for a reason to try again.
MAX_TEXT = 600

GrpcContext = grpc.aio.ServicerContext[Any, Any]


class Around(NamedTuple):
    """The coroutines of a service that run before and after a method of it, if any."""

    prepare: Callable[[Message], Awaitable[None]] | None
    finish: Callable[[], Awaitable[None]] | None


def generic_handlers(
    *services: object, faults: Faults, storage: Storage | None = None
) -> list[grpc.GenericRpcHandler]:
    """One handler for each service of the table, for a gRPC server."""
    return [
        grpc.method_handlers_generic_handler(service, handlers)
        for service, handlers in method_handlers(*services, faults=faults, storage=storage).items()
    ]


def method_handlers(
    *services: object, faults: Faults, storage: Storage | None = None
) -> dict[str, dict[str, grpc.RpcMethodHandler[Any, Any]]]:
    """The handlers by service and method, answered by whichever object has the method."""
    by_service: dict[str, dict[str, grpc.RpcMethodHandler[Any, Any]]] = {}
    for rpc in RPCS:
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", rpc.method).lower()
        service = next((s for s in services if hasattr(s, name)), None)
        method = getattr(service, name, None)
        around = Around(
            getattr(service, f"prepare_{name}", None), getattr(service, f"finish_{name}", None)
        )
        handler = _handler(rpc, method, around, faults, storage)
        by_service.setdefault(rpc.service, {})[rpc.method] = handler
    return by_service


def _handler(
    rpc: Rpc,
    method: Callable[..., Any] | None,
    around: Around,
    faults: Faults,
    storage: Storage | None,
) -> grpc.RpcMethodHandler[Any, Any]:
    if method is None:
        method = _unimplemented(rpc)
    elif rpc.kind is Kind.BIDI:
        return grpc.stream_stream_rpc_method_handler(
            _streaming(rpc, method, faults, storage), rpc.request.FromString, _serialize
        )
    elif "context" in inspect.signature(method).parameters:
        # On the wire a unary answer and a stream of one response are the same.
        return grpc.unary_stream_rpc_method_handler(
            _writing(rpc, method, faults), _parser(rpc), _serialize
        )
    return grpc.unary_unary_rpc_method_handler(
        _unary(rpc, method, around, faults, storage), _parser(rpc), _serialize
    )


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


def _parser(rpc: Rpc) -> Callable[[bytes], Message | DecodeError]:
    def parse(data: bytes) -> Message | DecodeError:
        try:
            return rpc.request.FromString(data)
        except DecodeError as error:
            # Raised from here it would end the call with UNKNOWN. The handler raises it.
            return error

    return parse


def _unary(
    rpc: Rpc,
    method: Callable[..., Message],
    around: Around,
    faults: Faults,
    storage: Storage | None,
) -> Callable[[Message | DecodeError, GrpcContext], Any]:
    wants_peer = "peer" in inspect.signature(method).parameters

    async def carry(request: Message, context: GrpcContext) -> Message:
        bound = partial(method, peer=context.peer()) if wants_peer else method
        response = await carry_out(storage, bound, request)
        if around.finish is not None:
            await around.finish()
        return response

    async def answer(request: Message | DecodeError, context: GrpcContext) -> Message:
        try:
            if isinstance(request, DecodeError):
                raise request
            if around.prepare is not None:
                await around.prepare(request)
            if not faults.active:
                return await carry(request, context)
            with faults.call(rpc, context) as call:
                await call.begin(request)
                try:
                    response = await carry(request, context)
                except errors.RpcError as refusal:
                    raise call.joined(refusal) from None
                await call.finish(response)
                return response
        except Exception as error:
            await _end(context, rpc, error)

    return answer


def _writing(
    rpc: Rpc, method: Callable[[Message, Context], Any], faults: Faults
) -> Callable[[Message | DecodeError, GrpcContext], Any]:
    async def answer(request: Message | DecodeError, context: GrpcContext) -> None:
        try:
            if isinstance(request, DecodeError):
                raise request
            with faults.call(rpc, context) as call:
                await call.begin(request)
                await method(request, call)
                call.check()
        except Exception as error:
            await _end(context, rpc, error)

    return answer


def _streaming(
    rpc: Rpc, method: Callable[[Context], Any], faults: Faults, storage: Storage | None
) -> Callable[[Any, GrpcContext], Any]:
    async def answer(_requests: object, context: GrpcContext) -> None:
        try:
            with faults.call(rpc, context) as call:
                await method(call if storage is None else ConfirmingStream(call, storage))
        except StreamClosed:
            return
        except Exception as error:
            await _end(context, rpc, error)

    return answer


def _unimplemented(rpc: Rpc) -> Callable[[Message], NoReturn]:
    def refuse(_request: Message) -> NoReturn:
        raise errors.Unimplemented(f"{rpc.method} is not offered by this version of pullstream.")

    return refuse


async def _end(context: GrpcContext, rpc: Rpc, error: Exception) -> NoReturn:
    """End a call with the status for what was raised while it was served."""
    if isinstance(error, grpc.aio.BaseError):
        # The call has ended: its caller is gone, or the server stops.
        raise error
    if isinstance(error, DecodeError):
        error = errors.InvalidArgument(
            f"The request is not a valid {rpc.request.DESCRIPTOR.name}: {error}"
        )
    if not isinstance(error, errors.RpcError):
        # A fault of ours, not of the caller: say so there, and keep the trace here.
        _log.error("%s failed inside the broker", rpc.method, exc_info=error)
        error = errors.Internal(f"{rpc.method} failed inside the broker.")
    details = errors.rich_status(error)
    trailer = ((errors.STATUS_DETAILS_KEY, details),) if details else ()
    text = error.message
    if len(text) > MAX_TEXT:
        text = text[:MAX_TEXT] + "..."
    await context.abort(error.grpc_status_code, text, trailer)
