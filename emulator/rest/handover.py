"""Giving gRPC a connection that somebody else has accepted (Linux).

gRPC's core takes connections from its own listening socket only. So it is made to accept one from
us, and then the client's connection is put in that one's place, under the same file descriptor:
from there on gRPC talks with the client itself, and nobody stands between. The kernel forgets that
gRPC waits for that descriptor when its connection is replaced; it is told again, with what it knew.

None of it is promised by gRPC. `works` tries it once, before any client depends on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import platform
import re
import socket
import struct
import sys
import tempfile
import uuid
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from .sniff import PREFACE

# How long gRPC may take to greet a connection, in seconds. It takes a fraction of a millisecond.
PATIENCE = 5.0

_CHUNK = 64 * 1024
_ABSTRACT = "unix-abstract:"
_PATH = "unix:"
_EPOLL_CTL_ADD = 1

# The kernel's struct epoll_event has no gap on this one architecture.
_EVENT = "=IQ" if platform.machine() in ("x86_64", "AMD64") else "@IQ"

_WATCHED = re.compile(r"tfd:\s*(\d+) events:\s*([0-9a-f]+) data:\s*([0-9a-f]+)")

# What an HTTP/2 client sends first, with no settings; a ping; and a server's answer to it.
_HELLO = PREFACE + bytes.fromhex("000000040000000000")
_PING = bytes.fromhex("000008060000000000") + b"\7" * 8
_PONG = bytes.fromhex("000008060100000000") + b"\7" * 8


class CannotHandOver(Exception):
    """The connection is still the caller's, and nothing was read from it."""


class _Watch(NamedTuple):
    """What an epoll object has on record of a descriptor."""

    epoll: int
    events: int
    data: int


def new_address() -> str:
    """An address for gRPC to listen on that only this machine reaches; in gRPC's spelling."""
    name = f"pullstream-{uuid.uuid4().hex}"
    if sys.platform == "linux":
        return _ABSTRACT + name
    # gRPC removes the file when it ends.
    return _PATH + os.path.join(tempfile.gettempdir(), name)


async def connect(address: str) -> socket.socket:
    """A connection to gRPC at such an address."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.setblocking(False)
        if address.startswith(_ABSTRACT):
            # No name given: the kernel finds one, to know the connection by.
            connection.bind("")
            target = "\0" + address.removeprefix(_ABSTRACT)
        else:
            target = address.removeprefix(_PATH)
        await asyncio.get_running_loop().sock_connect(connection, target)
    except BaseException:
        connection.close()
        raise
    return connection


async def hand_over(client: socket.socket, address: str) -> None:
    """Give the non-blocking connection `client` to the gRPC server at `address`; closed here.

    Raises:
        CannotHandOver: gRPC does not do what is known of it.
    """
    with await connect(address) as ours:
        name = ours.getsockname()
        # gRPC speaks first. When it has, it waits for what the client says.
        greeting = await _greeting(ours)
        descriptor = _accepted(name, ours.fileno())
        watches = list(_watches(descriptor))
        if not watches:
            raise CannotHandOver("gRPC does not wait for the connection by epoll")
        # A connection on which nothing was sent takes these few bytes at once.
        client.send(greeting)
        os.dup2(client.fileno(), descriptor, inheritable=False)
        for watch in watches:
            _watch_again(watch, descriptor)
    client.close()


async def works(address: str) -> bool:
    """Whether the gRPC server at `address` answers on a connection that it was handed."""
    if sys.platform != "linux":
        return False
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        try:
            await hand_over(theirs, address)
            await asyncio.wait_for(_ping(ours), PATIENCE)
        except (CannotHandOver, OSError, asyncio.TimeoutError):
            return False
    return True


async def _ping(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(connection, _HELLO + _PING)
    received = b""
    while _PONG not in received:
        data = await loop.sock_recv(connection, _CHUNK)
        if not data:
            raise ConnectionResetError
        received += data


async def _greeting(ours: socket.socket) -> bytes:
    loop = asyncio.get_running_loop()
    try:
        greeting = await asyncio.wait_for(loop.sock_recv(ours, _CHUNK), PATIENCE)
    except asyncio.TimeoutError:
        greeting = b""
    if not greeting:
        raise CannotHandOver("gRPC did not greet the connection")
    return greeting


def _accepted(name: bytes, near: int) -> int:
    """The descriptor of gRPC's end of the connection with this name."""
    descriptors = [int(entry) for entry in os.listdir("/proc/self/fd")]
    # It was made after ours, so it mostly has one of the next numbers.
    for descriptor in sorted(descriptors, key=lambda d: (d < near, d)):
        if _peer(descriptor) == struct.pack("=H", socket.AF_UNIX) + name:
            return descriptor
    raise CannotHandOver("gRPC's end of the connection is not in this process")


def _peer(descriptor: int) -> bytes:
    """The address at the other end of a connection; nothing of what is no connection.

    Not by way of a socket object: that might change how somebody's socket waits.
    """
    address, size = ctypes.create_string_buffer(128), ctypes.c_uint(128)
    if _libc().getpeername(descriptor, address, ctypes.byref(size)) != 0:
        return b""
    return address.raw[: size.value]


def _watches(descriptor: int) -> Iterator[_Watch]:
    for entry in os.listdir("/proc/self/fdinfo"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{entry}") != "anon_inode:[eventpoll]":
                continue
            with open(f"/proc/self/fdinfo/{entry}") as info:
                for number, events, data in _WATCHED.findall(info.read()):
                    if int(number) == descriptor:
                        yield _Watch(int(entry), int(events, 16), int(data, 16))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _watch_again(watch: _Watch, descriptor: int) -> None:
    event = ctypes.create_string_buffer(struct.pack(_EVENT, watch.events, watch.data))
    if _libc().epoll_ctl(watch.epoll, _EPOLL_CTL_ADD, descriptor, event) != 0:
        raise OSError(ctypes.get_errno(), "epoll_ctl")
