"""Runs RPCs for HTTP requests, with the same handlers that serve gRPC calls."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import grpc
import grpc.aio
from google.protobuf.message import Message

from pullstream_protocol.errors import Internal, RpcError, from_status
from pullstream_protocol.rpcs import BY_METHOD

_log = logging.getLogger("pullstream.emulator")

Handlers = Mapping[str, Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]]


class CallerGone(grpc.aio.BaseError):
    """The client disconnected before the response was sent."""


class CallContext:
    """Context of a call: the part of grpc.aio.ServicerContext that the handlers use."""

    async def write(self, message: Message) -> None:
        """Send a response."""
        raise NotImplementedError

    async def abort(
        self,
        code: grpc.StatusCode,
        details: str = "",
        trailing_metadata: Iterable[tuple[str, str | bytes]] = (),
    ) -> NoReturn:
        """End the call with an error, as grpc.aio does.

        Args:
            code: The gRPC status.
            details: The error's text.
            trailing_metadata: Metadata that may contain the error's reason.

        Raises:
            RpcError: Always.
        """
        raise from_status(code, details, trailing_metadata)

    def time_remaining(self) -> float | None:
        """Return the seconds until the caller gives up; None if it sets no deadline."""
        return None

    def peer(self) -> str:
        """Return an empty name, because no stream shares this call's connection."""
        return ""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """Return nothing, because HTTP headers are not gRPC metadata."""
        return ()

    async def read(self) -> Any:
        """Return the end of the requests: an HTTP call has only its first request."""
        return grpc.aio.EOF

    async def send_initial_metadata(self, metadata: Any) -> None:
        """Do nothing: the headers are sent with the response."""


class RpcBridge:
    """Runs every RPC by its name.

    Args:
        handlers: Handlers of all services, by service and method.
    """

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers

    async def carry_out(self, method: str, request: Message, context: CallContext) -> None:
        """Run an RPC, and write its response to `context`.

        Args:
            method: Name of the RPC.
            request: The request message.
            context: Receives the response.

        Raises:
            RpcError: The call ends with this error instead of OK.
            grpc.aio.BaseError: The client has disconnected.
        """
        try:
            handler = self._handlers[BY_METHOD[method].service][method]
            if handler.unary_unary is not None:
                unary: Any = handler.unary_unary
                await context.write(await unary(request, context))
            else:
                # The handler writes the responses itself.
                writing: Any = handler.unary_stream
                await writing(request, context)
        except (RpcError, grpc.aio.BaseError):
            raise
        except Exception as error:
            _log.error("%s failed inside the broker", method, exc_info=error)
            raise Internal(f"{method} failed inside the broker.") from error
