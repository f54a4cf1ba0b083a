"""The memory of messages, between those that end and those that come."""

from __future__ import annotations

# From this size on, in bytes, glibc looks at each piece that is freed whether the heap can shrink.
_LARGE = 64 * 1024

# As much as gRPC takes in of a stream ahead of its reader (`connection.WINDOW_BYTES`).
_BLOCK_BYTES = 4 * 1024 * 1024


class Heap:
    """Lets the process keep the memory of large responses that are finished, for the next ones.

    glibc gives the end of a heap back to the system when 128 KiB of it are free, or twice the
    largest block that was ever mapped by itself and freed (mallopt(3), M_MMAP_THRESHOLD). Messages
    of 10 KB that are acknowledged together are more than that: they were given back, and their
    memory taken anew, page by page, for the next ones. It was a sixth of the CPU that they cost. So
    such a block is freed here; up to twice its size stays with each heap. No page of it is touched.
    Where MALLOC_TRIM_THRESHOLD_ is set, or malloc is not glibc's, nothing changes.
    """

    def __init__(self) -> None:
        self._keeps = False

    def received(self, size: int) -> None:
        """A response of so many bytes came in. On the reader's thread."""
        if size >= _LARGE and not self._keeps:
            self._keeps = True
            bytearray(_BLOCK_BYTES)
