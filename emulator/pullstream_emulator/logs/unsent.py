"""The memory of unsent frames, and the order in which streams use it when it is short."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pullstream_emulator.engine.log import Usage

# The memory that the unsent frames of all readers may use together, in bytes.
MAX_UNSENT_BYTES = 256 * 1024 * 1024

# A frame is in memory twice while it is written: as a message, and as encoded bytes.
COPIES = 2


class Writing(Protocol):
    """A stream that writes its frames one by one."""

    @property
    def is_slow(self) -> bool:
        """Whether its reader has read nothing for some time."""

    def wake(self) -> None:
        """Note that there may be a frame to build now. Must only set a flag."""

    def give_way(self) -> None:
        """End it, because the memory of its frame is needed."""


class Unsent:
    """Decides when a stream may build its next frame.

    If there is no memory, a stream waits until other streams have written their frames. Streams
    continue in the order in which they began to wait. One stream can always continue, even if the
    broker is full of messages, so all frames together exceed the limit by at most one frame. A
    slow stream ends if other streams wait for its memory, or if a request needs it.

    Args:
        usage: Counts the bytes.
        room: Returns the number of bytes that the broker may still use.
    """

    def __init__(self, usage: Usage, room: Callable[[], int]) -> None:
        self._usage = usage
        self._room = room
        self._bytes = 0
        self._reserved: dict[Writing, int] = {}
        # Longest waiting stream first.
        self._waiting: dict[Writing, None] = {}

    def is_waited_for(self, stream: Writing) -> bool:
        """Return whether other streams wait for the memory of this stream's unsent frame."""
        return bool(self._waiting) and stream in self._reserved

    def admits(self, stream: Writing) -> bool:
        """Return whether a stream may build a frame now; if not, it is woken later."""
        if next(iter(self._waiting), stream) is stream and self._has_room:
            self._waiting.pop(stream, None)
            return True
        self._waiting[stream] = None
        self.end_slow()
        return False

    def end_slow(self) -> None:
        """End the slow streams that have an unsent frame, because its memory is needed."""
        for stream in [each for each in self._reserved if each.is_slow]:
            stream.give_way()

    def reserve(self, stream: Writing, size: int) -> None:
        """Note that a stream begins to write a frame of `size` bytes."""
        self._reserved[stream] = size
        self._count(size)

    def reserve_more(self, stream: Writing, size: int) -> None:
        """Note that a stream's unsent frame uses `size` more bytes."""
        if stream in self._reserved:
            self._reserved[stream] += size
            self._count(size)

    def release(self, stream: Writing) -> None:
        """Note that a stream has written its frame, or has none."""
        self._count(-self._reserved.pop(stream, 0))
        self.wake_next()

    def leave(self, stream: Writing) -> None:
        """Note that a stream has ended."""
        self._waiting.pop(stream, None)
        self.release(stream)

    def wake_next(self) -> None:
        """Wake the stream whose turn it is, if there is memory for a frame."""
        if self._waiting and self._has_room:
            next(iter(self._waiting)).wake()

    @property
    def _has_room(self) -> bool:
        return not self._reserved or (self._bytes < MAX_UNSENT_BYTES and self._room() > 0)

    def _count(self, size: int) -> None:
        self._bytes += size
        self._usage.watches += size
