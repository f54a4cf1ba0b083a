"""A gRPC server whose answers a test writes, for answers that no correct broker gives."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import Message

from pullstream_protocol.errors import RpcError, status_of
from pullstream_protocol.rpcs import BY_METHOD

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Call:
    """One call that arrived."""

    method: str
    request: Any
    metadata: dict[str, str | bytes]
    time_remaining: float | None


class ScriptedServer:
    """Answers every unary RPC of the table with `answer(call)`: a response, or an error raised.

    The default response is empty. `calls` has the received calls in order.
    """

    def __init__(self, answer: Callable[[Call], Message | None] = lambda call: None) -> None:
        self.calls: list[Call] = []
        self._answer = answer
        self._server = grpc.server(ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers((_Handlers(self._serve),))
        self.endpoint = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait()

    def _serve(self, method: str, request: Any, context: grpc.ServicerContext) -> Message:
        metadata = {str(key): value for key, value in context.invocation_metadata()}
        call = Call(method, request, metadata, context.time_remaining())
        self.calls.append(call)
        try:
            return self._answer(call) or BY_METHOD[method].response()
        except RpcError as error:
            code, text, trailers = status_of(error)
            context.set_trailing_metadata(trailers)
            context.abort(code, text)


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, serve: Callable[[str, Any, grpc.ServicerContext], Message]) -> None:
        self._serve = serve

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        method = details.method.rpartition("/")[2]
        rpc = BY_METHOD[method]
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self._serve(method, request, context),
            rpc.request.FromString,
            rpc.response.SerializeToString,
        )
