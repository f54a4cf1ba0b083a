"""gRPC handlers for every row of pullstream_protocol.rpcs, from plain service objects.

Each service has a table of its RPCs (rpc_methods.py). An RPC without an entry is unimplemented. An
error of pullstream_protocol.errors becomes the status of the call.

Faults are applied here, so services need no code for them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from pullstream_emulator.faults import Faults, StreamClosed
from pullstream_protocol import errors
from pullstream_protocol.rpcs import RPCS, Rpc

from .disk_barrier import ConfirmingStream, carry_out, check
from .rpc_methods import RpcMethod, RpcService, StreamMethod, UnaryMethod, WritingMethod

if TYPE_CHECKING:
    from pullstream_emulator.storage.storage import Storage

_log = logging.getLogger("pullstream.emulator")

GrpcContext = grpc.aio.ServicerContext[Any, Any]


def generic_handlers(
    *services: RpcService, faults: Faults, storage: Storage | None = None
) -> list[grpc.GenericRpcHandler]:
    """Return one handler for each service in the table of RPCs, for a gRPC server."""
    tables = method_handlers(*services, faults=faults, storage=storage)
    return [grpc.method_handlers_generic_handler(name, table) for name, table in tables.items()]


class UnknownMethods(grpc.GenericRpcHandler):
    """Refuses every method with UNIMPLEMENTED. It must be the last handler of a server.

    gRPC's own refusal has no details, see `status_of`.
    """

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        """Return a handler that refuses the call; it need not wait for a request."""
        error = errors.Unimplemented(f"The method {details.method} is unknown.")

        async def refuse(_requests: object, context: GrpcContext) -> NoReturn:
            await context.abort(*errors.status_of(error))

        return grpc.stream_stream_rpc_method_handler(refuse)


def method_handlers(
    *services: RpcService, faults: Faults, storage: Storage | None = None
) -> dict[str, dict[str, grpc.RpcMethodHandler[Any, Any]]]:
    """Return the handlers by service and method.

    Raises:
        ValueError: The table of a service names an unknown RPC.
    """
    tables = {service.service: dict(service.rpc_methods()) for service in services}
    by_service: dict[str, dict[str, grpc.RpcMethodHandler[Any, Any]]] = {}
    for rpc in RPCS:
        method = tables.get(rpc.service, {}).pop(rpc.method, None)
        handler = _handler(rpc, method or UnaryMethod(_unimplemented(rpc)), faults, storage)
        by_service.setdefault(rpc.service, {})[rpc.method] = handler
    unknown = [f"{service}/{name}" for service, table in tables.items() for name in table]
    if unknown:
        raise ValueError(f"unknown RPCs: {', '.join(unknown)}")
    return by_service


def _handler(
    rpc: Rpc, method: RpcMethod, faults: Faults, storage: Storage | None
) -> grpc.RpcMethodHandler[Any, Any]:
    if isinstance(method, StreamMethod):
        return grpc.stream_stream_rpc_method_handler(
            _streaming(rpc, method, faults, storage), rpc.request.FromString, _serialize
        )
    if isinstance(method, WritingMethod):
        # A unary response and a stream of one response are the same on the wire.
        return grpc.unary_stream_rpc_method_handler(
            _writing(rpc, method, faults), _parser(rpc), _serialize
        )
    return grpc.unary_unary_rpc_method_handler(
        _unary(rpc, method, faults, storage), _parser(rpc), _serialize
    )


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


def _parser(rpc: Rpc) -> Callable[[bytes], Message | DecodeError]:
    def parse(data: bytes) -> Message | DecodeError:
        try:
            return rpc.request.FromString(data)
        except DecodeError as error:
            # An error raised here would end the call with UNKNOWN, so the handler raises it.
            return error

    return parse


def _unary(
    rpc: Rpc, method: UnaryMethod, faults: Faults, storage: Storage | None
) -> Callable[[Message | DecodeError, GrpcContext], Any]:
    name = rpc.method
    respond, keywords = method.respond, method.keywords
    prepare, finish = method.prepare, method.finish

    async def carry(request: Message, context: GrpcContext) -> Message:
        bound = respond if keywords is None else partial(respond, **keywords(context))
        if prepare is not None:
            check(storage, name, request)
            prepared = await prepare(request)
            while storage is not None and (numbers := storage.numbers_for(request)) is not None:
                await numbers
                # The earlier result was valid until this await.
                prepared = await prepare(request)
            bound = partial(bound, **prepared)
        response = await carry_out(storage, name, bound, request)
        if finish is not None:
            await finish()
        return response

    async def answer(request: Message | DecodeError, context: GrpcContext) -> Message:
        try:
            if isinstance(request, DecodeError):
                raise request
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
    rpc: Rpc, method: WritingMethod, faults: Faults
) -> Callable[[Message | DecodeError, GrpcContext], Any]:
    async def answer(request: Message | DecodeError, context: GrpcContext) -> None:
        try:
            if isinstance(request, DecodeError):
                raise request
            with faults.call(rpc, context) as call:
                await call.begin(request)
                await method.serve(request, call)
                call.check()
        except Exception as error:
            await _end(context, rpc, error)

    return answer


def _streaming(
    rpc: Rpc, method: StreamMethod, faults: Faults, storage: Storage | None
) -> Callable[[Any, GrpcContext], Any]:
    async def answer(_requests: object, context: GrpcContext) -> None:
        try:
            with faults.call(rpc, context) as call:
                await method.serve(call if storage is None else ConfirmingStream(call, storage))
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
    """End a call with the status of the error that its handler raised."""
    if isinstance(error, grpc.aio.InternalError):
        # The caller left during the write: the write failed before gRPC reported the cancellation.
        # grpc.aio would log a traceback of this error, but not of a CancelledError.
        raise asyncio.CancelledError from error
    if isinstance(error, grpc.aio.BaseError):
        # The call has already ended, or the server is stopping.
        raise error
    if isinstance(error, DecodeError):
        error = errors.InvalidArgument(
            f"The request is not a valid {rpc.request.DESCRIPTOR.name}: {error}"
        )
    if not isinstance(error, errors.RpcError):
        # A bug in the broker: the caller gets a short text, and the log gets the traceback.
        _log.error("%s failed inside the broker", rpc.method, exc_info=error)
        error = errors.Internal(f"{rpc.method} failed inside the broker.")
    await context.abort(*errors.status_of(error))
