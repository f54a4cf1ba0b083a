"""RPCs carried out for HTTP requests, by the very handlers that answer gRPC calls."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import grpc
import grpc.aio
from google.protobuf.message import Message

from protocol.errors import Internal, RpcError, from_status
from protocol.rpcs import BY_METHOD

_log = logging.getLogger("pullstream.emulator")

Handlers = Mapping[str, Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]]


class CallerGone(grpc.aio.BaseError):
    """The connection was closed before the answer could go."""


class CallContext:
    """What an RPC's handler has of a call: so much of grpc.aio.ServicerContext as it uses."""

    async def write(self, message: Message) -> None:
        """Send a response."""
        raise NotImplementedError

    async def abort(
        self,
        code: grpc.StatusCode,
        details: str = "",
        trailing_metadata: Iterable[tuple[str, str | bytes]] = (),
    ) -> NoReturn:
        """End the call with an error, as grpc.aio has it."""
        raise from_status(code, details, trailing_metadata)

    def time_remaining(self) -> float | None:
        """Seconds until the caller gives up; None if it has not said."""
        return None

    def peer(self) -> str:
        """No stream shares its connection."""
        return ""

    async def read(self) -> Any:
        return grpc.aio.EOF

    async def send_initial_metadata(self, metadata: Any) -> None:
        """Headers go with the answer."""


class Calls:
    """Every RPC, by its name.

    Args:
        handlers: those of every service, by service and method.
    """

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers

    async def carry_out(self, method: str, request: Message, context: CallContext) -> None:
        """Have `request` answered: what it is answered with is written to `context`.

        Raises:
            RpcError: what the call ends with instead of OK.
            grpc.aio.BaseError: the caller is gone.
        """
        try:
            handler = self._handlers[BY_METHOD[method].service][method]
            if handler.unary_unary is not None:
                unary: Any = handler.unary_unary
                await context.write(await unary(request, context))
            else:
                # It writes its answer itself.
                writing: Any = handler.unary_stream
                await writing(request, context)
        except (RpcError, grpc.aio.BaseError):
            raise
        except Exception as error:
            _log.error("%s failed inside the broker", method, exc_info=error)
            raise Internal(f"{method} failed inside the broker.") from error
