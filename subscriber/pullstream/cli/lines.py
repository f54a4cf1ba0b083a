"""Splits streams into lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

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
