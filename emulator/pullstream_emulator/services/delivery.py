"""Encoding of the engine's deliveries in responses."""

from __future__ import annotations

from pullstream_emulator.engine import Delivery
from pullstream_protocol.messages import encoded_pb2 as encoded
from pullstream_protocol.messages import pubsub_pb2 as pubsub


def add_deliveries(
    response: encoded.EncodedPullResponse | encoded.EncodedStreamingPullResponse,
    taken: list[tuple[str, Delivery]],
    config: pubsub.Subscription,
) -> None:
    """Add deliveries to a response, with the stored bytes of each message.

    Creating the entries in the response takes half the time of copying a list into it.

    Args:
        response: The response to which the messages are added.
        taken: Pairs of ack ID and delivery.
        config: The subscription's settings.
    """
    add = response.received_messages.add
    for ack_id, delivery in taken:
        received = add()
        received.ack_id = ack_id
        received.message = delivery.record.encoded
    if config.HasField("dead_letter_policy"):
        # The response has delivery attempts only with a dead-letter policy.
        added = response.received_messages[-len(taken) :] if taken else ()
        for received, (_, delivery) in zip(added, taken, strict=True):
            received.delivery_attempt = delivery.attempts + 1
