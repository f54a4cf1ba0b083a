"""Delay of replies until the changes of the call are on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import Message

from pullstream_protocol.messages import encoded_pb2 as encoded
from pullstream_protocol.rpcs import BY_METHOD

from .context import Context

if TYPE_CHECKING:
    from pullstream_emulator.storage.storage import Storage

R = TypeVar("R")


# RPCs that change only leases and registrations, which are not on disk.
_IN_MEMORY = frozenset({"Commands", "ModifyAckDeadline", "Poll", "Pull", "Unregister"})


def check(storage: Storage | None, rpc: str, request: Message) -> None:
    """Begin a call; see `carry_out`, which also does this.

    Raises:
        Unavailable: The disk cannot be written, and the RPC changes stored data.
    """
    if storage is not None:
        storage.check(request, needs_disk=not (BY_METHOD[rpc].reads or rpc in _IN_MEMORY))


async def carry_out(
    storage: Storage | None, rpc: str, method: Callable[[Message], R], request: Message
) -> R:
    """Call `method` with `request`, and delay its result or error until the changes are on disk.

    Args:
        storage: The storage of the broker; None if everything is in memory.
        rpc: The name of the RPC.
        method: The handler of the request.
        request: The request.

    Raises:
        Unavailable: The disk cannot be written, and the RPC changes stored data.
    """
    check(storage, rpc, request)
    if storage is None:
        return method(request)
    try:
        return method(request)
    finally:
        # Errors wait too: an error that names some ack IDs as stale implies that the other ack IDs
        # are acknowledged.
        barrier = storage.barrier(request)
        if barrier is not None:
            await barrier


async def change(storage: Storage | None, action: Callable[[], R]) -> R:
    """Call `action`, and return its result when its changes are as durable as required.

    For changes that are not RPCs. Must be called on the broker's event loop.

    Raises:
        Unavailable: The disk cannot be written.
    """
    if storage is None:
        return action()
    storage.begin()
    result = action()
    owed = storage.owed()
    if owed is not None:
        await owed
    return result


class ConfirmingStream:
    """A stream's context that sends confirmations of acknowledgements when they are on disk.

    Only confirmed acknowledgements wait for the disk. An unconfirmed one may be redelivered after a
    crash, which the contract allows.
    """

    def __init__(self, context: Context, storage: Storage) -> None:
        self._context = context
        self._storage = storage
        self.read = context.read
        self.send_initial_metadata = context.send_initial_metadata
        self.time_remaining = context.time_remaining
        self.peer = context.peer
        self.invocation_metadata = context.invocation_metadata

    async def write(self, response: encoded.EncodedStreamingPullResponse) -> None:
        """Send a response; if it confirms acknowledgements, wait until they are on disk."""
        if response.HasField("acknowledge_confirmation"):
            barrier = self._storage.confirmation_barrier()
            if barrier is not None:
                await barrier
        await self._context.write(response)
