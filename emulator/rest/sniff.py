"""Whether a connection is gRPC's, by what the client says first."""

from __future__ import annotations

import struct
from collections.abc import Iterator

# How an HTTP/2 client that knows the server begins.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

# No method of HTTP/1.1 begins with so much of the preface.
ENOUGH = 3

# The head of a TLS record: its kind, a version, its length.
TLS_HEAD = 5

_HANDSHAKE = 22
_ALPN = 16


def is_preface(start: bytes) -> bool:
    return PREFACE.startswith(start[: len(PREFACE)])


def is_tls(start: bytes) -> bool:
    return start[:1] == bytes((_HANDSHAKE,))


def tls_size(head: bytes) -> int:
    """The bytes of the first record of TLS, with its head."""
    return TLS_HEAD + int.from_bytes(head[3:TLS_HEAD], "big")


def wants_grpc(hello: bytes) -> bool:
    """Whether a client that says so speaks HTTP/2 and nothing else, as gRPC's clients do.

    `hello` is the first record of TLS. A browser or curl offers HTTP/1.1 as well.
    """
    try:
        offered = set(_protocols(hello))
    except (IndexError, struct.error):
        # No client of TLS begins so; whoever serves it will say that.
        return False
    return b"h2" in offered and b"http/1.1" not in offered


def _protocols(hello: bytes) -> Iterator[bytes]:
    """The protocols that a ClientHello offers (RFC 8446, 4.1.2 and RFC 7301)."""
    # Past the heads of the record and of the message, the version, and the random bytes.
    at = TLS_HEAD + 4 + 2 + 32
    # Past the session's id, the cipher suites, and the methods of compression.
    at += 1 + hello[at]
    at += 2 + _number(hello, at)
    at += 1 + hello[at]
    end = at + 2 + _number(hello, at)
    at += 2
    while at < end:
        kind, size = _number(hello, at), _number(hello, at + 2)
        at += 4
        if kind == _ALPN:
            yield from _names(hello[at + 2 : at + size])
        at += size


def _names(listed: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(listed):
        size = listed[at]
        yield listed[at + 1 : at + 1 + size]
        at += 1 + size


def _number(data: bytes, at: int) -> int:
    number: int = struct.unpack_from(">H", data, at)[0]
    return number
