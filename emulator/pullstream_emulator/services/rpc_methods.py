"""Entries in the table of a service: how the service implements each of its RPCs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from .context import Context


class CallContext(Protocol):
    """The properties of a unary call that a service can use: a part of grpc.aio.ServicerContext."""

    def peer(self) -> str:
        """Return the address of the caller's connection; empty if no stream can share it."""

    def invocation_metadata(self) -> Any:
        """Return the metadata of the request as pairs of key and value."""


@dataclass(frozen=True, slots=True)
class UnaryMethod:
    """A function that returns the response to a request.

    Attributes:
        respond: Called with the request, and with the keyword arguments from `keywords` and
            `prepare`.
        keywords: Returns keyword arguments for `respond` from the context of the call; None: none.
        prepare: Awaited with the request before `respond`, for work that must not delay other
            calls. Returns keyword arguments that are valid until the next await; None: nothing.
        finish: Awaited after `respond`, before the response is sent; None: nothing.
    """

    respond: Callable[..., Message]
    keywords: Callable[[CallContext], dict[str, Any]] | None = None
    prepare: Callable[[Any], Awaitable[Mapping[str, Any]]] | None = None
    finish: Callable[[], Awaitable[None]] | None = None


@dataclass(frozen=True, slots=True)
class WritingMethod:
    """A coroutine that takes a request and the call's context, and writes its responses itself.

    It may wait, and it learns whether its response was sent.

    Attributes:
        serve: The coroutine.
    """

    serve: Callable[[Any, Context], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class StreamMethod:
    """A coroutine that serves a bidirectional stream.

    Attributes:
        serve: The coroutine. It reads requests from the context and writes responses to it.
    """

    serve: Callable[[Context], Awaitable[None]]


RpcMethod: TypeAlias = UnaryMethod | WritingMethod | StreamMethod


class RpcService(Protocol):
    """A service with a table of its RPCs. An error of pullstream_protocol.errors ends a call."""

    @property
    def service(self) -> str:
        """The full name of the gRPC service."""

    def rpc_methods(self) -> Mapping[str, RpcMethod]:
        """Return the implemented RPCs by name."""


def metadata_of(context: CallContext) -> dict[str, Any]:
    """Return the keyword argument `metadata`: the metadata of the call, as a dict."""
    return {"metadata": dict(context.invocation_metadata() or ())}


def on_field(field: str, function: Callable[[str], Message | None]) -> UnaryMethod:
    """Return a method that calls `function` with one field of the request.

    Its response is the result of `function`; Empty if there is none.
    """

    def respond(request: Message) -> Message:
        result = function(getattr(request, field))
        return Empty() if result is None else result

    # The reference of the HTTP API shows the first line.
    respond.__doc__ = function.__doc__
    return UnaryMethod(respond)
