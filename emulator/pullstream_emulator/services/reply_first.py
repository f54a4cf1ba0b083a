"""Delay of deliveries, so that the reply to a Publish arrives before the published message.

A client that publishes and subscribes over one connection may get its message before the message's
ID, although the reply is sent first. If both arrive in one read, grpc-js passes on the messages of
a stream immediately, and the result of a unary call one turn of its loop later. Google's service
and its emulator never deliver that fast, so tests compare IDs in their callbacks.

Between two connections the order cannot be observed. There the message goes first: its delay adds
to the latency of the subscriber, while the publisher only waits for a receipt.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from pullstream_protocol.errors import Unavailable

# The delay in seconds, the shortest wait of the event loop. A client reads a reply in less time.
DELAY = 0.001

# Longest time from a Publish until it wakes a stream on a busy machine, in seconds.
RECENT = 0.02


class ReplyFirst:
    """The connection and the time of the last Publish. Used on the broker's event loop only.

    A stream is woken by the last Publish before it on the loop, so only the last one matters. A
    stream that has more messages to send does not wait, because it is late anyway.

    Args:
        barrier: Returns an awaitable that delays the reply to a Publish; None: no delay.
    """

    def __init__(self, barrier: Callable[[], Awaitable[None] | None] = lambda: None) -> None:
        self._barrier = barrier
        self._newest = ""
        self._recent_until = 0.0

    def published(self, peer: str) -> None:
        """Record a Publish over the connection with `peer`, "" if it came another way."""
        self._newest = peer
        if peer:
            self._recent_until = asyncio.get_running_loop().time() + RECENT

    async def let_streams_write(self) -> None:
        """Let the streams that a Publish has woken write, before the reply to the Publish."""
        await asyncio.sleep(0)

    async def delay(self, peer: str) -> None:
        """Wait before a delivery to `peer` if the message may be one that it has just published."""
        if not peer or peer != self._newest:
            return
        if asyncio.get_running_loop().time() < self._recent_until:
            barrier = self._barrier()
            if barrier is not None:
                # The reply to the Publish reports an error of the disk.
                with contextlib.suppress(Unavailable):
                    await barrier
            await asyncio.sleep(DELAY)
