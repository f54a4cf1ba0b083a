"""One call over HTTP."""

from __future__ import annotations

import json

from aiohttp import web
from google.protobuf.message import Message

from protocol.errors import RpcError
from protocol.rpcs import Rpc

from . import status
from .calls import CallContext, CallerGone
from .json_form import dumps

_JSON = {"Content-Type": "application/json; charset=UTF-8"}


class Call(CallContext):
    """A call whose answer is the HTTP response.

    response: what was answered; None while nothing was.
    """

    def __init__(self, request: web.Request, rpc: Rpc) -> None:
        self._request = request
        self._rpc = rpc
        self.response: web.StreamResponse | None = None

    async def write(self, message: Message) -> None:
        """Send the answer. Raises when the caller is gone."""
        if not isinstance(message, self._rpc.response):
            # The same bytes, in the form in which messages are stored.
            message = self._rpc.response.FromString(message.SerializeToString())
        query = self._request.query
        alt = query.get("$alt") or query.get("alt") or ""
        text = dumps(
            message,
            pretty=query.get("prettyPrint", "true") != "false",
            enum_numbers="enum-encoding=int" in alt,
        )
        await self._send(web.Response(text=text + "\n", headers=_JSON))

    async def refuse(self, error: RpcError) -> None:
        """Send an error for an answer."""
        await self._send(error_response(error))

    def time_remaining(self) -> float | None:
        """Seconds until the caller gives up, as Google's HTTP clients tell it."""
        try:
            return max(0.0, float(self._request.headers["X-Server-Timeout"]))
        except (KeyError, ValueError):
            return None

    async def _send(self, response: web.Response) -> None:
        self.response = response
        try:
            await response.prepare(self._request)
            await response.write_eof()
        except ConnectionError as error:
            raise CallerGone from error


def error_response(error: RpcError) -> web.Response:
    text = json.dumps(status.body(error), indent=2, ensure_ascii=False)
    return web.Response(status=int(error.code or 500), text=text + "\n", headers=_JSON)
