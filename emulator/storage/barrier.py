"""Calls that are answered when what they changed is on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import Message

from emulator.services.context import Context
from protocol.messages import encoded_pb2 as encoded

if TYPE_CHECKING:
    from .storage import Storage

R = TypeVar("R")


async def carry_out(storage: Storage | None, method: Callable[[Message], R], request: Message) -> R:
    """What `method` makes of `request`, returned or raised once it may be told."""
    if storage is None:
        return method(request)
    storage.check(request)
    try:
        return method(request)
    finally:
        # Also of an error: an answer that names some ack ids as stale says the others are done.
        barrier = storage.barrier(request)
        if barrier is not None:
            await barrier


class ConfirmingStream:
    """A stream's context that confirms no acknowledgement before it is on disk.

    Nothing else waits: who gets a message again that he had acknowledged without asking for a
    confirmation was promised no better.
    """

    def __init__(self, context: Context, storage: Storage) -> None:
        self._context = context
        self._storage = storage
        self.read = context.read
        self.send_initial_metadata = context.send_initial_metadata
        self.time_remaining = context.time_remaining
        self.peer = context.peer

    async def write(self, response: encoded.EncodedStreamingPullResponse) -> None:
        if response.HasField("acknowledge_confirmation"):
            barrier = self._storage.newest_barrier()
            if barrier is not None:
                await barrier
        await self._context.write(response)
