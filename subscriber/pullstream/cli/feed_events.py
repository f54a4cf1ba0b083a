"""Output records of feeds: messages with their topic, gaps and other events."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from pullstream.follow import Record
from pullstream.logs.feeds.frames import CaughtUp, Gap, GapReason, TopicDeleted
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .output import message_record

Event = tuple[dict[str, Any], str]


def feed_record(message: pubsub.PubsubMessage | Record, topic: str) -> dict[str, Any]:
    """Return a record of a feed for JSON: a message with its topic."""
    published = message.publish_time
    if not isinstance(published, datetime):
        published = published.ToDatetime(timezone.utc)
    return {"event": "record", "topic": topic, **message_record(message, published, None)}


def event_of(frame: Gap | CaughtUp | TopicDeleted) -> Event:
    """Return a frame without messages as an object for machines and as a note for people."""
    if isinstance(frame, Gap):
        return _gap(frame)
    if isinstance(frame, CaughtUp):
        record = {"event": "caught-up", "topic": frame.topic, "headSeq": frame.head_seq}
        return record, f"{frame.topic}: caught up at {frame.head_seq}"
    return {"event": "topic-deleted", "topic": frame.topic}, f"{frame.topic}: deleted"


def _gap(gap: Gap) -> Event:
    reason = gap.reason.name.lower()
    record = {
        "event": "gap",
        "topic": gap.topic,
        "reason": reason,
        "fromSeq": gap.from_seq,
        "toSeq": gap.to_seq,
        "earliestSeq": gap.earliest_seq,
        "headSeq": gap.head_seq,
    }
    lost = f"lost {gap.from_seq} to {gap.to_seq} ({reason})"
    if gap.reason is GapReason.RECREATED and gap.to_seq < gap.from_seq:
        lost = "deleted and recreated; its numbers start again"
    elif gap.reason is GapReason.FROM_SEQ_TOO_OLD and gap.from_seq == 1:
        # A reader without a position has lost nothing.
        lost = f"begins at {gap.to_seq + 1}; earlier records are no longer kept"
    return record, f"{gap.topic}: {lost}"
