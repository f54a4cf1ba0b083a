"""The few HTTP/2 frames that a hostile client needs (RFC 9113, RFC 7541)."""

from __future__ import annotations

import struct

DATA, HEADERS, RST_STREAM, SETTINGS = 0, 1, 3, 4
END_STREAM, ACK, END_HEADERS = 1, 1, 4
MAX_CONCURRENT_STREAMS, MAX_HEADER_LIST_SIZE = 3, 6
CANCEL = 8

LIST_TOPICS = b"/google.pubsub.v1.Publisher/ListTopics"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    length = struct.pack(">I", len(payload))[1:]
    return length + bytes((kind, flags)) + struct.pack(">I", stream) + payload


# What a client sends first: the preface, its settings, and that it knows the server's.
OPENING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0) + frame(SETTINGS, ACK, 0)


def call(stream: int, *headers: tuple[bytes, bytes]) -> bytes:
    """Return the headers of a call of ListTopics; names and values have at most 126 bytes."""
    fields = [
        (b":path", LIST_TOPICS),
        (b":authority", b"broker"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
        *headers,
    ]
    # The first two bytes are `:method POST` and `:scheme http` of the static table.
    block = b"\x83\x86" + b"".join(_literal(*field) for field in fields)
    return frame(HEADERS, END_HEADERS, stream, block)


def empty_message(stream: int) -> bytes:
    """Return the request of a call: an empty message, and the end of the requests."""
    return frame(DATA, END_STREAM, stream, bytes(5))


def reset(stream: int) -> bytes:
    """Return the frame that cancels a call."""
    return frame(RST_STREAM, 0, stream, struct.pack(">I", CANCEL))


def _literal(name: bytes, value: bytes) -> bytes:
    return b"\x00" + bytes((len(name),)) + name + bytes((len(value),)) + value
