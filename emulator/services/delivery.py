"""Deliveries of the engine as they go on the wire."""

from __future__ import annotations

from emulator.engine import Delivery
from protocol.messages import encoded_pb2 as encoded
from protocol.messages import pubsub_pb2 as pubsub


def received_messages(
    taken: list[tuple[str, Delivery]], config: pubsub.Subscription
) -> list[encoded.EncodedReceivedMessage]:
    """The deliveries as they go on the wire, each message copied as the bytes it was stored as."""
    if not config.HasField("dead_letter_policy"):
        return [
            encoded.EncodedReceivedMessage(ack_id=ack_id, message=delivery.record.encoded)
            for ack_id, delivery in taken
        ]
    # Attempts are told only where a dead-letter policy makes them count.
    return [
        encoded.EncodedReceivedMessage(
            ack_id=ack_id,
            message=delivery.record.encoded,
            delivery_attempt=delivery.attempts + 1,
        )
        for ack_id, delivery in taken
    ]
