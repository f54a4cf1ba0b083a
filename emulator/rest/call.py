"""One call over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NoReturn

import grpc
import grpc.aio
from aiohttp import web
from google.protobuf.message import Message

from protocol.errors import RpcError, from_status
from protocol.rpcs import Rpc

from . import status
from .json_form import dumps

_JSON = {"Content-Type": "application/json; charset=UTF-8"}


class CallerGone(grpc.aio.BaseError):
    """The connection was closed before the answer could go."""


class Call:
    """What an RPC's handler has of a call: so much of grpc.aio.ServicerContext as it uses.

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

    async def abort(
        self,
        code: grpc.StatusCode,
        details: str = "",
        trailing_metadata: Iterable[tuple[str, str | bytes]] = (),
    ) -> NoReturn:
        """End the call with an error, as grpc.aio has it."""
        raise from_status(code, details, trailing_metadata)

    def time_remaining(self) -> float | None:
        """Seconds until the caller gives up, as Google's HTTP clients tell it."""
        try:
            return max(0.0, float(self._request.headers["X-Server-Timeout"]))
        except (KeyError, ValueError):
            return None

    def peer(self) -> str:
        """No stream shares its connection."""
        return ""

    async def read(self) -> Any:
        return grpc.aio.EOF

    async def send_initial_metadata(self, metadata: Any) -> None:
        """Headers go with the answer."""

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
