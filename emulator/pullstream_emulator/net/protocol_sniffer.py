"""Detection of a connection's protocol, gRPC or HTTP/1.1, from the client's first bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator

# First bytes of an HTTP/2 client that expects HTTP/2.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

# Length of a TLS record's header: its type, a version, its length.
TLS_HEAD = 5

# The longest TLS record that is allowed before keys exist, with its header.
MAX_RECORD = TLS_HEAD + 16 * 1024

_HANDSHAKE = 22
_ALPN = 16


def needed(start: bytes) -> int:
    """Return how many first bytes of a connection are needed to detect its protocol.

    If `start` has fewer bytes, call again when that many have arrived: the number may grow.
    """
    if is_tls(start):
        return TLS_HEAD if len(start) < TLS_HEAD else tls_size(start)
    if PREFACE.startswith(start[: len(PREFACE)]):
        # Any further byte may differ from the preface.
        return min(len(start) + 1, len(PREFACE))
    return len(start)


def is_grpc(start: bytes) -> bool:
    """Return whether a connection is a gRPC client's; needs as many bytes as `needed` says."""
    return wants_grpc(start) if is_tls(start) else start == PREFACE


def is_tls(start: bytes) -> bool:
    """Return whether the first byte begins a TLS handshake."""
    return start[:1] == bytes((_HANDSHAKE,))


def tls_size(head: bytes) -> int:
    """Return the size of the first TLS record with its header, in bytes; at most MAX_RECORD."""
    return min(TLS_HEAD + int.from_bytes(head[3:TLS_HEAD], "big"), MAX_RECORD)


def wants_grpc(hello: bytes) -> bool:
    """Return whether a ClientHello offers HTTP/2 only, as gRPC clients do.

    `hello` is the first TLS record. A browser or curl offers HTTP/1.1 as well.
    """
    try:
        offered = set(_protocols(hello))
    except (IndexError, struct.error):
        # Not a TLS client. The HTTP server will report the error.
        return False
    return b"h2" in offered and b"http/1.1" not in offered


def _protocols(hello: bytes) -> Iterator[bytes]:
    """Yield the protocols that a ClientHello offers (RFC 8446, 4.1.2 and RFC 7301)."""
    # Skip the headers of the record and of the message, the version, and the random bytes.
    at = TLS_HEAD + 4 + 2 + 32
    # Skip the session id, the cipher suites, and the compression methods.
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
