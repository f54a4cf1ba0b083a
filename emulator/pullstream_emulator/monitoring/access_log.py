"""Access log: one line for each call, with its caller, its outcome and its duration."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from pullstream_emulator.log_output import FIELDS
from pullstream_protocol.clock import SYSTEM_CLOCK

_log = logging.getLogger("pullstream.emulator.access")

_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}


def log_call(protocol: str, caller: str, call: str, outcome: str, seconds: float) -> None:
    """Log one call that has ended.

    Args:
        protocol: "gRPC" or "HTTP".
        caller: Address of the caller.
        call: The RPC, or method and path of the request.
        outcome: The status.
        seconds: Duration of the call.
    """
    fields = {
        "protocol": protocol,
        "caller": caller,
        "call": call,
        "outcome": outcome,
        "seconds": round(seconds, 6),
    }
    text = "%s %s %s %s %.1f ms"
    values = (caller, protocol, call, outcome, seconds * 1000)
    _log.info(text, *values, extra={FIELDS: fields})


class AccessLogInterceptor(grpc.aio.ServerInterceptor):
    """Logs every RPC when it ends. Put it before the other interceptors, to see refused calls."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return the handler of the call, which logs its end."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method.removeprefix("/")
        codecs = (handler.request_deserializer, handler.response_serializer)
        if handler.stream_stream is not None:
            behaviour, make = handler.stream_stream, grpc.stream_stream_rpc_method_handler
        elif handler.unary_stream is not None:
            behaviour, make = handler.unary_stream, grpc.unary_stream_rpc_method_handler
        else:
            behaviour, make = handler.unary_unary, grpc.unary_unary_rpc_method_handler
        return make(_logged(method, behaviour), *codecs)


def _name(code: grpc.StatusCode | int) -> str:
    """Return the name of a status; some versions of gRPC have its number."""
    return code.name if isinstance(code, grpc.StatusCode) else _NAMES.get(code, "UNKNOWN")


def _logged(method: str, behaviour: Any) -> Any:
    async def answer(request: Any, context: Any) -> Any:
        begun = SYSTEM_CLOCK.monotonic()
        outcome = "CANCELLED"
        try:
            response = await behaviour(request, context)
            outcome = "OK"
            return response
        except grpc.aio.AbortError:
            outcome = _name(context.code())
            raise
        finally:
            seconds = SYSTEM_CLOCK.monotonic() - begun
            log_call("gRPC", context.peer(), method, outcome, seconds)

    return answer
