"""Messages made by hand, as a subscription would hand them over."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.messages import pubsub_pb2 as pubsub
from subscriber.message import Batch, Message
from subscriber.spark.prepared import PreparedRows
from subscriber.spark.segment import encode
from tests.subscriber.streaming.fakes import Outcomes


def batch(
    ids: Sequence[str],
    outcomes: Outcomes | None = None,
    *,
    share: int = 10,
    delivery: int = 1,
    data: bytes = b"",
    published: Sequence[float] = (),
) -> list[Message]:
    """The messages of one response; the ack id tells which delivery of its message it is."""
    received = [
        pubsub.ReceivedMessage(
            ack_id=f"{one}/{delivery}", message=pubsub.PubsubMessage(message_id=one, data=data)
        )
        for one in ids
    ]
    for one, seconds in zip(received, published, strict=False):
        one.message.publish_time.FromMilliseconds(round(seconds * 1000))
    response = pubsub.StreamingPullResponse(received_messages=received)
    return Batch(outcomes or Outcomes(), 0.0, share, response).messages()


def encoded(messages: list[Message], subscription: str | None = None) -> tuple[memoryview, int]:
    """The bytes of a segment with these messages, and how many Arrow batches are in it."""
    return encode(PreparedRows(subscription).take(messages))
