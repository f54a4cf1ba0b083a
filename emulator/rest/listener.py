"""Accepting connections, before anybody has read from them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Awaitable, Callable

_log = logging.getLogger("pullstream.emulator")

_BACKLOG = 1024

# How long to leave new connections alone when the process has no file descriptor left, in seconds.
_PAUSE = 1.0


class Listener:
    """Hands every connection to `serve`, as a non-blocking socket that `serve` then owns."""

    def __init__(self, serve: Callable[[socket.socket], Awaitable[None]]) -> None:
        self._serve = serve
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen at every address of `host`, on one port; returns it (0 picks a free one).

        Raises:
            OSError: the port is in use at one of the addresses, or none of them can be used.
        """
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        refused: OSError | None = None
        for family, _, _, _, address in found:
            try:
                self._sockets.append(_bound(family, (address[0], port, *address[2:])))
            except OSError as error:
                refused = error
                if error.errno == errno.EADDRINUSE:
                    break
                # A machine may know an address of IPv6 for itself and yet not have it.
                continue
            port = self._sockets[0].getsockname()[1]
        if refused is not None and (refused.errno == errno.EADDRINUSE or not self._sockets):
            self._close()
            raise OSError(f"cannot listen on {host}:{port}: {refused.strerror}") from refused
        for listening in self._sockets:
            self._spawn(self._accept(listening))
        return port

    async def stop(self) -> None:
        """Take no more connections, and drop those that `serve` is not done with."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._close()

    def _close(self) -> None:
        for listening in self._sockets:
            listening.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except ConnectionError:
                # It was gone before it was taken.
                continue
            except OSError as error:
                _log.warning("no connection can be taken now: %s", error.strerror)
                await asyncio.sleep(_PAUSE)
                continue
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._spawn(self._hand_on(connection))

    async def _hand_on(self, connection: socket.socket) -> None:
        try:
            await self._serve(connection)
        except asyncio.CancelledError:
            connection.close()
            raise
        except Exception as error:
            connection.close()
            if not isinstance(error, OSError):
                _log.error("a connection failed inside the broker", exc_info=error)

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _bound(family: int, address: tuple[object, ...]) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            # The addresses of IPv4 are listened at by sockets of their own.
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening
