"""gRPC handlers for every row of protocol.rpcs, from plain service objects.

A service is an object with one method for each RPC it offers, named in snake case. A unary method
takes the request and returns the response or an awaitable of it; a streaming one takes the call's
context. Whatever it raises of protocol.errors becomes the status of the call.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable
from typing import Any, NoReturn

import grpc
import grpc.aio
from google.protobuf.message import Message

from protocol import errors
from protocol.rpcs import RPCS, Kind, Rpc

_log = logging.getLogger("pullstream.emulator")

Context = grpc.aio.ServicerContext[Any, Any]


def generic_handlers(*services: object) -> list[grpc.GenericRpcHandler]:
    """One handler for each service of the table, answered by whichever object has the method."""
    by_service: dict[str, dict[str, grpc.RpcMethodHandler[Any, Any]]] = {}
    for rpc in RPCS:
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", rpc.method).lower()
        method = next((getattr(s, name) for s in services if hasattr(s, name)), None)
        by_service.setdefault(rpc.service, {})[rpc.method] = _handler(rpc, method)
    return [
        grpc.method_handlers_generic_handler(service, handlers)
        for service, handlers in by_service.items()
    ]


def _handler(rpc: Rpc, method: Callable[..., Any] | None) -> grpc.RpcMethodHandler[Any, Any]:
    if rpc.kind is Kind.BIDI and method is not None:
        return grpc.stream_stream_rpc_method_handler(
            _streaming(method), rpc.request.FromString, _serialize
        )
    return grpc.unary_unary_rpc_method_handler(
        _unary(rpc, method or _unimplemented(rpc)), rpc.request.FromString, _serialize
    )


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


def _unary(rpc: Rpc, method: Callable[..., Any]) -> Callable[[Message, Context], Any]:
    takes_context = len(inspect.signature(method).parameters) > 1

    async def answer(request: Message, context: Context) -> Message:
        try:
            response = method(request, context) if takes_context else method(request)
            answer: Message = await response if inspect.isawaitable(response) else response
            return answer
        except errors.RpcError as error:
            await abort(context, error)
        except Exception:
            # A fault of ours, not of the caller: say so there, and keep the trace here.
            _log.exception("%s failed on %r", rpc.method, request)
            await abort(context, errors.Internal(f"{rpc.method} failed inside the broker."))

    return answer


def _streaming(method: Callable[[Context], Any]) -> Callable[[Any, Context], Any]:
    async def answer(_requests: object, context: Context) -> None:
        try:
            await method(context)
        except errors.RpcError as error:
            await abort(context, error)

    return answer


def _unimplemented(rpc: Rpc) -> Callable[[Message], NoReturn]:
    def refuse(_request: Message) -> NoReturn:
        raise errors.Unimplemented(f"{rpc.method} is not offered by this version of pullstream.")

    return refuse


async def abort(context: Context, error: errors.RpcError) -> NoReturn:
    """End the call with the status of `error`, its ErrorInfo in the trailer."""
    details = errors.rich_status(error)
    trailer = ((errors.STATUS_DETAILS_KEY, details),) if details else ()
    await context.abort(error.grpc_status_code, error.message, trailer)
