"""Messages out of lines, as they come, and batches that one request can hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from protocol.messages import pubsub_pb2 as pubsub

# The limits are 1000 messages and 10,000,000 bytes a request; topic and framing need room, too.
MAX_BATCH_MESSAGES = 1000
MAX_BATCH_BYTES = 9_000_000

# Tag and length of a message inside the request, at most.
_FRAMING_BYTES = 6
_READ_BYTES = 1 << 20


class ReadableStream(Protocol):
    """A buffered binary stream."""

    def read1(self, size: int, /) -> bytes: ...


def line_groups(stream: ReadableStream) -> Iterator[list[bytes]]:
    """The lines of `stream` without their ends, in groups: those that one read has completed.

    A file comes in large groups, and what another program writes comes as soon as it is there, so
    that `tail -f log | pullstream publish` does not sit on the newest lines.
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
    """Cut `messages` into batches of up to 1000 messages and 9 MB; a larger one goes alone."""
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
