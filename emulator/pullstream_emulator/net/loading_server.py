"""Answers on the port of a broker that still reads its data directory."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from concurrent.futures import Future

from .listener import listen

LOADING = "The broker is loading its data directory."

# Longest head of a request, in bytes, and the time for a client to send its first line, in seconds.
_MAX_HEAD = 8192
_RECEIVE_TIMEOUT = 5.0

_ALIVE = "/healthz"


class LoadingServer:
    """Answers every request during its `with` block, on a thread.

    A probe of life gets 200. Every other request gets 503, `/readyz` among them. A gRPC client sees
    UNAVAILABLE, and connects again. After the block the port is closed for some milliseconds, until
    the broker listens on it.

    Args:
        host: Address to listen on.
        port: Port to listen on.
        context: Serve TLS with it; None serves plaintext.
    """

    def __init__(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        self._host = host
        self._port = port
        self._context = context
        self._listening: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()), name="pullstream-loading", daemon=True
        )

    def __enter__(self) -> LoadingServer:
        """Listen.

        Raises:
            OSError: The address cannot be used.
        """
        self._thread.start()
        self._listening.result()
        return self

    def __exit__(self, *_: object) -> None:
        loop, ended = self._listening.result()
        loop.call_soon_threadsafe(ended.set)
        self._thread.join()

    async def _serve(self) -> None:
        ended = asyncio.Event()
        try:
            servers = [
                await asyncio.start_server(
                    self._answer, sock=listening, ssl=self._context, limit=_MAX_HEAD
                )
                for listening in await listen(self._host, self._port)
            ]
        except BaseException as error:
            # `__enter__` raises it. Without it, `__enter__` would wait for ever.
            self._listening.set_exception(error)
            return
        self._listening.set_result((asyncio.get_running_loop(), ended))
        await ended.wait()
        for server in servers:
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A client that disconnects, or sends no complete line, needs no answer.
        with contextlib.suppress(OSError, ValueError, asyncio.TimeoutError):
            line = await asyncio.wait_for(reader.readline(), _RECEIVE_TIMEOUT)
            _, path, *_ = line.decode("latin-1").split(" ")
            is_alive = path.partition("?")[0] == _ALIVE
            status, text = ("200 OK", "Ok") if is_alive else ("503 Service Unavailable", LOADING)
            head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            head += f"Content-Length: {len(text) + 1}\r\nRetry-After: 1\r\nConnection: close\r\n"
            writer.write(f"{head}\r\n{text}\n".encode())
            await writer.drain()
        writer.close()
