"""Splits streams into lines, and messages into batches that fit into one request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from pullstream_protocol.messages import pubsub_pb2 as pubsub

# The server allows 1000 messages and 10,000,000 bytes per request, including topic and framing.
MAX_BATCH_MESSAGES = 1000
MAX_BATCH_BYTES = 9_000_000

# Maximum size of a message's tag and length in the request.
_FRAMING_BYTES = 6
_READ_BYTES = 1 << 20


class ReadableStream(Protocol):
    """A buffered binary stream."""

    def read1(self, size: int, /) -> bytes:
        """Return at most `size` bytes as soon as some are available; empty at the end."""


def line_groups(stream: ReadableStream) -> Iterator[list[bytes]]:
    """Yield the lines of `stream` without line ends, in groups that were completed by one read.

    A file is read in large groups. The output of another program is read as soon as it arrives, so
    `tail -f log | pullstream publish` does not delay the newest lines.
    """
    unfinished: list[bytes] = []
    while chunk := stream.read1(_READ_BYTES):
        first, *rest = chunk.split(b"\n")
        unfinished.append(first)
        if rest:
            lines = [b"".join(unfinished), *rest[:-1]]
            unfinished = [rest[-1]]
            yield [line.removesuffix(b"\r") for line in lines]
    last = b"".join(unfinished)
    if last:
        yield [last]


def batches(messages: Iterable[pubsub.PubsubMessage]) -> Iterator[list[pubsub.PubsubMessage]]:
    """Divide messages into batches of up to 1000 messages and 9 MB; a larger one is sent alone."""
    batch: list[pubsub.PubsubMessage] = []
    size = 0
    for message in messages:
        grown = size + message.ByteSize() + _FRAMING_BYTES
        if batch and (len(batch) == MAX_BATCH_MESSAGES or grown > MAX_BATCH_BYTES):
            yield batch
            batch, grown = [], grown - size
        batch.append(message)
        size = grown
    if batch:
        yield batch
