"""A listener that accepts connections and does not read from them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable
from typing import Any

_log = logging.getLogger("pullstream.emulator")

_BACKLOG = 1024

# Most connections accepted in a row before the event loop does other work.
_AT_ONCE = 16

# Pause before accepting again when the process has no file descriptor left, in seconds.
_PAUSE = 1.0


class Listener:
    """Passes every connection to `take` as a non-blocking socket, which `take` then owns."""

    def __init__(self, take: Callable[[socket.socket], None]) -> None:
        self._take = take
        self._sockets: list[socket.socket] = []
        self._pauses: set[asyncio.TimerHandle] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen on all addresses of `host`, on one port; return the port (0 picks a free one).

        Raises:
            OSError: The port is in use at one of the addresses, or no address can be used.
        """
        self._loop = asyncio.get_running_loop()
        self._sockets = await listen(host, port)
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)
        bound: int = self._sockets[0].getsockname()[1]
        return bound

    def stop(self) -> None:
        """Accept no more connections."""
        for pause in self._pauses:
            pause.cancel()
        for listening in self._sockets:
            if listening.fileno() != -1:
                self._loop.remove_reader(listening)
                listening.close()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _ = listening.accept()
            except BlockingIOError:
                return
            except ConnectionError:
                # The client disconnected before the connection was accepted.
                continue
            except OSError as error:
                _log.warning("cannot accept connections now: %s", error.strerror)
                self._pause(listening)
                return
            connection.setblocking(False)
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._take(connection)

    def _pause(self, listening: socket.socket) -> None:
        def resume() -> None:
            self._pauses.discard(timer)
            self._loop.add_reader(listening, self._accept, listening)

        self._loop.remove_reader(listening)
        timer = self._loop.call_later(_PAUSE, resume)
        self._pauses.add(timer)


async def listen(host: str, port: int) -> list[socket.socket]:
    """Return non-blocking sockets that listen on all addresses of `host`, on one port.

    Args:
        host: Address or name.
        port: The port; 0 picks a free one.

    Raises:
        OSError: The host is unknown, the port is in use at one of its addresses, or no address can
            be used.
    """
    refused: OSError | None = None
    sockets: list[socket.socket] = []
    for family, _, _, _, address in await addresses_of(host, port):
        try:
            sockets.append(_bound(family, (address[0], port, *address[2:])))
        except OSError as error:
            refused = error
            if error.errno == errno.EADDRINUSE:
                break
            # A host may resolve to an IPv6 address that the machine does not have.
            continue
        port = sockets[0].getsockname()[1]
    if refused is not None and (refused.errno == errno.EADDRINUSE or not sockets):
        for listening in sockets:
            listening.close()
        raise OSError(f"cannot listen on {host}:{port}: {refused.strerror}") from refused
    return sockets


async def addresses_of(host: str, port: int) -> list[Any]:
    """Return the addresses of a host, as `socket.getaddrinfo` does.

    Raises:
        OSError: The host is unknown, or its name is invalid.
    """
    try:
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise OSError(f"cannot listen on {host}: {reason}") from error


def _bound(family: int, address: tuple[object, ...]) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            # Separate sockets listen on the IPv4 addresses.
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening
