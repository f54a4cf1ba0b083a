"""Faults of delivery: duplicates, changed order, and leases that end early."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .fault import Fault, FaultedCall
from .scope import Scope

# Ends leases at once, as if their deadline had passed. Arguments: subscription name and ack ids.
Expire = Callable[[str, list[str]], object]


class Duplicate(Fault):
    """Delivers messages twice in one response, the second time with another ack id."""

    kind = "duplicate-deliveries"

    async def sending(self, call: FaultedCall, response: Any) -> None:
        """Insert a copy behind each chosen message; only the original's ack id has a lease."""
        received = _received(response)
        position = {each.ack_id: float(i) for i, each in enumerate(received)}
        chosen = [each for each in received if self.claim()]
        for each in chosen:
            copy = received.add()
            copy.CopyFrom(each)
            # No lease has an id that begins with 0, so the broker treats this one as expired.
            copy.ack_id = f"0{each.ack_id}"
            position[copy.ack_id] = position[each.ack_id] + 0.5
        if chosen:
            # Keep copies next to each other, so that the order within a key is preserved.
            received.sort(key=lambda each: position[each.ack_id])


class Shuffle(Fault):
    """Changes the order of a response's messages; those with an ordering key stay in place."""

    kind = "shuffle-deliveries"

    async def sending(self, call: FaultedCall, response: Any) -> None:
        """Give the messages without an ordering key a different order."""
        received = _received(response)
        positions = [i for i, each in enumerate(received) if not _ordering_key(each)]
        if len(positions) < 2 or not self.claim():
            return
        order = positions.copy()
        while order == positions:
            self.dice.shuffle(order)
        moved = dict(zip(positions, order, strict=True))
        position = {each.ack_id: moved.get(i, i) for i, each in enumerate(received)}
        received.sort(key=lambda each: position[each.ack_id])


class ExpireLeases(Fault):
    """Ends leases as soon as their messages have been sent."""

    kind = "expire-leases"

    def __init__(self, scope: Scope, expire: Expire) -> None:
        super().__init__(scope)
        self._expire = expire

    def sent(self, call: FaultedCall, response: Any) -> None:
        """End the leases of the chosen messages, so that the broker redelivers these."""
        received = _received(response)
        ended = [each.ack_id for each in received if self.claim()]
        if ended:
            (subscription,) = call.resources
            self._expire(subscription, ended)


def _received(response: Any) -> Any:
    """Return the messages of a response; none if it is not a response of a pull."""
    return getattr(response, "received_messages", ())


def _ordering_key(received: Any) -> str:
    """Return a message's ordering key. The message may already be encoded."""
    message = received.message
    if isinstance(message, bytes):
        message = pubsub.PubsubMessage.FromString(message)
    key: str = message.ordering_key
    return key
