"""Messages made by hand, as a subscription would pass them on."""

from __future__ import annotations

from collections.abc import Sequence

from pullstream import MessageColumns
from pullstream.columns.portions import Portion, Unit, ack_ids_in
from pullstream.lazy_messages import RawResponse
from pullstream.message import Message, ResponseBatch
from pullstream.spark.receiving.message_group import MessageGroup
from pullstream_protocol.call_lock import CallLock
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
    response = _response(ids, delivery, data, published)
    return ResponseBatch(outcomes or RecordingSettlementSink(), 0.0, share, response).messages()


def portion(
    ids: Sequence[str], outcomes: RecordingSettlementSink | None = None, *, delivery: int = 1
) -> Portion:
    """Return the messages of one response without an object for each; see `batch`."""
    response = RawResponse(_response(ids, delivery).SerializeToString())
    sink = outcomes or RecordingSettlementSink()
    return Portion(ResponseBatch(sink, 0.0, 10, response), 0, len(ids), CallLock())


def columns(units: Sequence[Unit], acked: list[str] | None = None) -> MessageColumns:
    """Return messages as the callback of a receiver gets them.

    Args:
        units: The messages.
        acked: Gets the ack ids of acknowledged portions.
    """

    def ack_portions(portions: Sequence[Portion], ack_ids: Sequence[str]) -> None:
        assert acked is not None
        assert list(ack_ids) == ack_ids_in(portions)
        acked.extend(ack_ids)

    return MessageColumns(units, ack_portions)


def group_of(units: Sequence[Unit], subscription: str | None = None) -> MessageGroup:
    """Return a group of messages that have arrived."""
    return MessageGroup.of_arrived(columns(units), subscription, 0.0)


def _response(
    ids: Sequence[str], delivery: int, data: bytes = b"", published: Sequence[float] = ()
) -> pubsub.StreamingPullResponse:
    received = [
        pubsub.ReceivedMessage(
            ack_id=f"{one}/{delivery}",
            message=pubsub.PubsubMessage(message_id=one, data=data),
            delivery_attempt=delivery,
        )
        for one in ids
    ]
    for one, seconds in zip(received, published, strict=False):
        one.message.publish_time.FromMilliseconds(round(seconds * 1000))
    return pubsub.StreamingPullResponse(received_messages=received)


def flat(groups: Sequence[MessageGroup]) -> list[Message]:
    """Return the messages of groups."""
    return [message for group in groups for message in group.messages]
