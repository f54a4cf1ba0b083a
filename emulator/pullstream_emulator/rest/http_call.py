"""One RPC that was received over HTTP."""

from __future__ import annotations

import asyncio
import json

from aiohttp import web
from google.protobuf.message import Message

from pullstream_emulator import error_body
from pullstream_protocol.errors import RpcError
from pullstream_protocol.rpcs import BY_METHOD, Rpc

from .http_request import JSON, MAX_QUICK
from .proto_json import dumps
from .rpc_bridge import CallContext, CallerGone


class HttpCall(CallContext):
    """A call whose result is the HTTP response.

    Args:
        request: The HTTP request.
        rpc: The RPC to run.

    Attributes:
        response: The response that was sent; None before that.
    """

    def __init__(self, request: web.Request, rpc: Rpc) -> None:
        self._request = request
        self._rpc = rpc
        self.response: web.StreamResponse | None = None

    async def write(self, message: Message) -> None:
        """Send the result; raise CallerGone if the client has disconnected."""
        query = self._request.query
        alt = query.get("$alt") or query.get("alt") or ""
        pretty = query.get("prettyPrint", "true") != "false"
        enum_numbers = "enum-encoding=int" in alt
        if message.ByteSize() > MAX_QUICK:
            text = await asyncio.to_thread(_text, self._rpc.method, message, pretty, enum_numbers)
        else:
            text = _text(self._rpc.method, message, pretty, enum_numbers)
        await self._send(web.Response(text=text + "\n", headers=JSON))

    async def refuse(self, error: RpcError) -> None:
        """Send an error instead of a result."""
        await self._send(error_response(error))

    def time_remaining(self) -> float | None:
        """Return the seconds until the caller gives up, as Google's HTTP clients send them."""
        try:
            return max(0.0, float(self._request.headers["X-Server-Timeout"]))
        except (KeyError, ValueError):
            return None

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the name of the client's program; other HTTP headers are not gRPC metadata."""
        return (("user-agent", self._request.headers.get("User-Agent", "")),)

    async def _send(self, response: web.Response) -> None:
        self.response = response
        try:
            await response.prepare(self._request)
            await response.write_eof()
        except ConnectionError as error:
            raise CallerGone from error


def _text(method: str, message: Message, pretty: bool, enum_numbers: bool) -> str:
    kind = BY_METHOD[method].response
    if not isinstance(message, kind):
        # The stored form of a message has the same bytes, but another type.
        message = kind.FromString(message.SerializeToString())
    return dumps(message, pretty=pretty, enum_numbers=enum_numbers)


def error_response(error: RpcError) -> web.Response:
    """Return an error in the form of Google's HTTP front end; its status is the code, or 500."""
    text = json.dumps(error_body.body(error), indent=2, ensure_ascii=False)
    return web.Response(status=int(error.code or 500), text=text + "\n", headers=JSON)
