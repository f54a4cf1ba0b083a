"""One port for gRPC and HTTP/1.1. The first bytes of a connection show its protocol."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import socket
import sys
import tempfile
import uuid
from collections.abc import Callable

from . import protocol_sniffer
from .listener import Listener
from .tcp_relay import TcpRelay

_log = logging.getLogger("pullstream.emulator")

_ABSTRACT = "unix-abstract:"
_PATH = "unix:"

# gRPC gets new connections in groups: the size of a group, and the pause after it in seconds. gRPC
# does not serve ready connections in a fair order. If it gets 1,200 new ones at once, its other
# clients wait until all of them are set up.
AT_ONCE = 4
PAUSE = 0.006


def new_address() -> str:
    """Return an address for gRPC, in gRPC's notation, that only this machine can reach."""
    name = f"pullstream-{uuid.uuid4().hex}"
    if sys.platform == "linux":
        return _ABSTRACT + name
    # gRPC removes the file when it ends.
    return _PATH + os.path.join(tempfile.gettempdir(), name)


class PortMux:
    """Listens for both protocols, relays gRPC connections to gRPC, and passes on the others.

    Nothing is consumed from a connection before its protocol is known.

    Args:
        grpc_address: Address on which gRPC listens.
        http: Takes over HTTP/1.1 connections.
        timeout: Time for a client to send the bytes that show its protocol, in seconds.
    """

    def __init__(
        self, grpc_address: str, http: Callable[[socket.socket], None], timeout: float
    ) -> None:
        self._grpc_address = grpc_address
        self._http = http
        self._timeout = timeout
        self._listener = Listener(self._take)
        self._undecided: dict[socket.socket, asyncio.TimerHandle] = {}
        # Connections for gRPC, oldest first.
        self._queue: dict[socket.socket, None] = {}
        self._pause: asyncio.TimerHandle | None = None
        self._pipes = TcpRelay(timeout)

    async def start(self, host: str, port: int) -> int:
        """Listen on `host:port` and return the port. gRPC must already be listening.

        Raises:
            OSError: The address cannot be used.
        """
        self._loop = asyncio.get_running_loop()
        bound = await self._listener.start(host, port)
        self._pipes.start()
        return bound

    def stop_listening(self) -> None:
        """Accept no more connections, and close the ones that gRPC does not have yet."""
        self._listener.stop()
        for connection in list(self._undecided):
            self._drop(connection)

    def stop(self) -> None:
        """Close the relayed connections."""
        self._pipes.stop()

    def _take(self, connection: socket.socket) -> None:
        self._undecided[connection] = self._loop.call_later(self._timeout, self._drop, connection)
        self._loop.add_reader(connection, self._check_first_bytes, connection)
        # When many clients connect at once, most of them have sent enough bytes by now.
        self._check_first_bytes(connection)

    def _check_first_bytes(self, connection: socket.socket) -> None:
        """Choose the protocol if enough bytes have arrived."""
        if connection not in self._undecided:
            return
        try:
            start = connection.recv(protocol_sniffer.MAX_RECORD, socket.MSG_PEEK)
            needed = protocol_sniffer.needed(start)
            if len(start) >= needed:
                self._decide(connection, is_grpc=protocol_sniffer.is_grpc(start[:needed]))
            elif len(start) < connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT):
                # The socket is readable with fewer bytes, so the client has closed its side.
                self._drop(connection)
            else:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, needed)
        except BlockingIOError:
            return
        except OSError:
            self._drop(connection)

    def _decide(self, connection: socket.socket, *, is_grpc: bool) -> None:
        if not is_grpc:
            self._http(self._release(connection))
            return
        self._loop.remove_reader(connection)
        self._queue[connection] = None
        if self._pause is None:
            self._connect_some()

    def _connect_some(self) -> None:
        self._pause = None
        for connection in list(itertools.islice(self._queue, AT_ONCE)):
            self._pause = self._pause or self._loop.call_later(PAUSE, self._connect_some)
            try:
                server = _connect(self._grpc_address)
            except BlockingIOError:
                # gRPC has not accepted the earlier ones yet. The connection stays in the queue.
                return
            except OSError as error:
                _log.warning("closing a connection that gRPC cannot take: %s", error.strerror)
                self._drop(connection)
            else:
                self._pipes.add(self._release(connection), server)

    def _release(self, connection: socket.socket) -> socket.socket:
        """Return the connection to its new owner, with no timer and no reader."""
        self._undecided.pop(connection).cancel()
        self._queue.pop(connection, None)
        self._loop.remove_reader(connection)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        return connection

    def _drop(self, connection: socket.socket) -> None:
        self._release(connection).close()


def _connect(address: str) -> socket.socket:
    """Return a connection to gRPC.

    Raises:
        BlockingIOError: The queue of gRPC's listener is full.
        OSError: gRPC does not listen, or no file descriptor is left.
    """
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.setblocking(False)
        if address.startswith(_ABSTRACT):
            # The kernel chooses a name, by which the broker distinguishes its clients.
            connection.bind("")
            target = "\0" + address.removeprefix(_ABSTRACT)
        else:
            target = address.removeprefix(_PATH)
        connection.connect(target)
    except BaseException:
        connection.close()
        raise
    return connection
