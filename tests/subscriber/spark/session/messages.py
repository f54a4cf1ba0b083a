"""Messages made by hand, as a subscription would pass them on."""

from __future__ import annotations

from collections.abc import Sequence

from pullstream.message import Message, ResponseBatch
from pullstream.spark.session.message_group import MessageGroup, rows_of
from pullstream.spark.spool.segment import encode
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.streaming.fakes import RecordingSettlementSink


def batch(
    ids: Sequence[str],
    outcomes: RecordingSettlementSink | None = None,
    *,
    share: int = 10,
    delivery: int = 1,
    data: bytes = b"",
    published: Sequence[float] = (),
) -> list[Message]:
    """Return the messages of one response. The ack id has the number of the delivery."""
    received = [
        pubsub.ReceivedMessage(
            ack_id=f"{one}/{delivery}", message=pubsub.PubsubMessage(message_id=one, data=data)
        )
        for one in ids
    ]
    for one, seconds in zip(received, published, strict=False):
        one.message.publish_time.FromMilliseconds(round(seconds * 1000))
    response = pubsub.StreamingPullResponse(received_messages=received)
    return ResponseBatch(outcomes or RecordingSettlementSink(), 0.0, share, response).messages()


def flat(groups: Sequence[MessageGroup]) -> list[Message]:
    """Return the messages of groups."""
    return [message for group in groups for message in group.messages]


def encoded(messages: list[Message], subscription: str | None = None) -> tuple[memoryview, int]:
    """Return the bytes of a segment with these messages, and the number of its Arrow batches."""
    return encode(rows_of([MessageGroup.of_arrived(messages, subscription)], subscription))
