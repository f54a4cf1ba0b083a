"""Faults of delivery: messages that come twice, or in another order, or whose leases end early."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from protocol.messages import pubsub_pb2 as pubsub

from .call import Call
from .fault import Fault
from .scope import Scope

# Ends leases of a subscription now, as if their deadline had come: its name, and their ack ids.
Expire = Callable[[str, list[str]], object]


class Duplicate(Fault):
    """Messages that come twice in one response, the second time under another ack id."""

    kind = "duplicate-deliveries"

    async def sending(self, call: Call, response: Any) -> None:
        received = _received(response)
        place = {each.ack_id: float(i) for i, each in enumerate(received)}
        chosen = [each for each in received if self.claim()]
        for each in chosen:
            copy = received.add()
            copy.CopyFrom(each)
            # No lease has an id that begins with 0. So the broker takes it for one that has ended.
            copy.ack_id = f"0{each.ack_id}"
            place[copy.ack_id] = place[each.ack_id] + 0.5
        if chosen:
            # Side by side, so that the order of a key is not broken.
            received.sort(key=lambda each: place[each.ack_id])


class Shuffle(Fault):
    """The messages of one response in another order; those with an ordering key stay in place."""

    kind = "shuffle-deliveries"

    async def sending(self, call: Call, response: Any) -> None:
        received = _received(response)
        places = [i for i, each in enumerate(received) if not _ordering_key(each)]
        if len(places) < 2 or not self.claim():
            return
        order = places.copy()
        while order == places:
            self.dice.shuffle(order)
        moved = dict(zip(places, order, strict=True))
        place = {each.ack_id: moved.get(i, i) for i, each in enumerate(received)}
        received.sort(key=lambda each: place[each.ack_id])


class ExpireLeases(Fault):
    """Leases that end as soon as their messages have gone out."""

    kind = "expire-leases"

    def __init__(self, scope: Scope, expire: Expire) -> None:
        super().__init__(scope)
        self._expire = expire

    def sent(self, call: Call, response: Any) -> None:
        received = _received(response)
        ended = [each.ack_id for each in received if self.claim()]
        if ended:
            (subscription,) = call.resources
            self._expire(subscription, ended)


def _received(response: Any) -> Any:
    """The messages in a response; none in one that is not of a pull."""
    return getattr(response, "received_messages", ())


def _ordering_key(received: Any) -> str:
    """Of the message in a delivery, which on its way to gRPC is encoded already."""
    message = received.message
    if isinstance(message, bytes):
        message = pubsub.PubsubMessage.FromString(message)
    key: str = message.ordering_key
    return key
