"""Access control for gRPC calls. Installed only if the broker has tokens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import grpc.aio
from google.protobuf.message import Message

from pullstream_protocol.errors import RpcError, status_of

from .access import Access, Principal
from .current_principal import called_by
from .request_projects import projects_of

Context = grpc.aio.ServicerContext[Any, Any]
if TYPE_CHECKING:
    # Generic only in its stubs.
    Handler = grpc.RpcMethodHandler[Any, Any]


class AccessInterceptor(grpc.aio.ServerInterceptor):
    """Checks every call's token and every request's projects before the method runs.

    Args:
        access: Decides about tokens and projects.
        open_services: Services that need no token.
    """

    def __init__(self, access: Access, *, open_services: Collection[str] = ()) -> None:
        self._access = access
        self._open = frozenset(open_services)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Return a handler that checks each request, or refuses the call without a valid token."""
        service = handler_call_details.method.rpartition("/")[0].removeprefix("/")
        if service in self._open:
            return await continuation(handler_call_details)
        try:
            header = _authorization(handler_call_details)
            principal = self._access.authenticate(header)
        except RpcError as error:
            # Also for unknown methods, so that a stranger does not learn which methods exist.
            return _refusing(error)
        handler = await continuation(handler_call_details)
        return None if handler is None else _checking(handler, principal)


def _authorization(details: grpc.HandlerCallDetails) -> str | None:
    for key, value in details.invocation_metadata or ():
        if key == "authorization":
            return value if isinstance(value, str) else value.decode(errors="replace")
    return None


def _refusing(error: RpcError) -> Handler:
    async def refuse(_requests: object, context: Context) -> NoReturn:
        await context.abort(*status_of(error))

    # Always a stream handler: it need not wait for a request.
    return grpc.stream_stream_rpc_method_handler(refuse)


def _checking(handler: Handler, principal: Principal) -> Handler:
    """Return the handler, preceded by a check of its request."""
    codecs = (handler.request_deserializer, handler.response_serializer)
    if handler.stream_stream is not None:
        streaming: Any = handler.stream_stream

        async def stream(requests: Any, context: Context) -> None:
            called_by(principal)
            await streaming(requests, _CheckedContext(context, principal))

        return grpc.stream_stream_rpc_method_handler(stream, *codecs)
    behaviour: Any = handler.unary_stream or handler.unary_unary

    async def answer(request: Any, context: Context) -> Any:
        called_by(principal)
        # A request that cannot be decoded is an error object here; the method refuses it.
        if isinstance(request, Message):
            try:
                principal.check(*projects_of(request))
            except RpcError as error:
                await context.abort(*status_of(error))
        return await behaviour(request, context)

    if handler.unary_stream is not None:
        return grpc.unary_stream_rpc_method_handler(answer, *codecs)
    return grpc.unary_unary_rpc_method_handler(answer, *codecs)


class _CheckedContext:
    """A stream's context that checks each request before the method receives it."""

    def __init__(self, context: Context, principal: Principal) -> None:
        self._context = context
        self._principal = principal

    async def read(self) -> Any:
        request = await self._context.read()
        if isinstance(request, Message):
            self._principal.check(*projects_of(request))
        return request

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)
