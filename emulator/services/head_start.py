"""The answer to a Publish goes some way ahead of what it makes the broker deliver.

A client that publishes and subscribes over one connection may get its message before it knows the
message's id, though the answer leaves first: when both come in one read, grpc-js passes on what a
stream brought at once, and the result of a unary call a turn of its loop later. Google's service
and its emulator never deliver that fast, so tests compare ids in their callbacks.

Between two connections nobody can tell which was ahead. There it is the other way round: whoever
waits for a message waits for all that it is late, the publisher only for a receipt.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from protocol.errors import Unavailable

# In seconds; the event loop knows no shorter wait. It takes a client less to read an answer.
HEAD_START = 0.001

# How long after a Publish a stream may still be woken by it, in seconds, on a busy machine.
RECENT = 0.02


class HeadStart:
    """Which connection published last, and when. Used on the broker's event loop only.

    A stream is woken by the Publish before it on the loop, so that one is all it needs to know. One
    that has more to send does not wait: it is behind anyway.

    barrier: what a Publish may have to wait for before it is answered; None: nothing.
    """

    def __init__(self, barrier: Callable[[], Awaitable[None] | None] = lambda: None) -> None:
        self._barrier = barrier
        self._newest = ""
        self._recent_until = 0.0

    def published(self, peer: str) -> None:
        """A Publish came over the connection with `peer`; it is empty for one that did not."""
        self._newest = peer
        if peer:
            self._recent_until = asyncio.get_running_loop().time() + RECENT

    async def let_others_go(self) -> None:
        """Before a Publish is answered: the streams that it has woken get to write."""
        await asyncio.sleep(0)

    async def give(self, peer: str) -> None:
        """What is to be sent to `peer` now may be what it has just published."""
        if not peer or peer != self._newest:
            return
        if asyncio.get_running_loop().time() < self._recent_until:
            barrier = self._barrier()
            if barrier is not None:
                # That the disk fails is said in the answer.
                with contextlib.suppress(Unavailable):
                    await barrier
            await asyncio.sleep(HEAD_START)
