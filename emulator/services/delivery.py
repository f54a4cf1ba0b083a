"""Deliveries of the engine as they go on the wire."""

from __future__ import annotations

from emulator.engine import Delivery
from protocol.messages import encoded_pb2 as encoded
from protocol.messages import pubsub_pb2 as pubsub


def add_deliveries(
    response: encoded.EncodedPullResponse | encoded.EncodedStreamingPullResponse,
    taken: list[tuple[str, Delivery]],
    config: pubsub.Subscription,
) -> None:
    """Add deliveries to a response, each message copied as the bytes it was stored as.

    Made in their place and filled there, they cost half of what a list does that is copied in.
    """
    add = response.received_messages.add
    for ack_id, delivery in taken:
        received = add()
        received.ack_id = ack_id
        received.message = delivery.record.encoded
    if config.HasField("dead_letter_policy"):
        # Attempts are told only where a dead-letter policy makes them count.
        added = response.received_messages[-len(taken) :] if taken else ()
        for received, (_, delivery) in zip(added, taken, strict=True):
            received.delivery_attempt = delivery.attempts + 1
