"""A push endpoint on loopback that answers as a test requests."""

from __future__ import annotations

import asyncio
import base64
import json
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from tests.emulator.wire import TIMEOUT


@dataclass(frozen=True)
class Pushed:
    """One request as the endpoint received it."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def data(self) -> str:
        """The data of the wrapped message."""
        return base64.b64decode(self.json["message"]["data"]).decode()


class Endpoint:
    """An HTTP server that runs for the duration of its `with` block.

    Attributes:
        answer: Returns the status for a request; 200 unless replaced. With 0 the request gets no
            answer
            until the end of the block or of its connection.
    """

    def __init__(self) -> None:
        self.answer: Callable[[Pushed], int] = lambda pushed: 200
        self._pushed: queue.SimpleQueue[Pushed] = queue.SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="push-endpoint")

    def url(self, path: str = "/push") -> str:
        return f"http://127.0.0.1:{self._port}{path}"

    def next(self) -> Pushed:
        """Return the next request. Each request is returned once."""
        return self._pushed.get(timeout=TIMEOUT)

    @property
    def is_quiet(self) -> bool:
        return self._pushed.empty()

    def __enter__(self) -> Endpoint:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> None:
        self._ended = asyncio.Event()
        app = web.Application()
        app.router.add_post("/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self._port: int = self._runner.addresses[0][1]

    async def _close(self) -> None:
        self._ended.set()
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        pushed = Pushed(request.path, dict(request.headers), await request.read())
        status = self.answer(pushed)
        self._pushed.put(pushed)
        if status == 0:
            await self._ended.wait()
        return web.Response(status=status or 200, headers={"Location": "/elsewhere"})
