"""What is printed of feeds: messages with their topic, gaps, and the like."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from protocol.messages import pubsub_pb2 as pubsub
from subscriber.feeds.frames import CaughtUp, Gap, GapReason, TopicDeleted
from subscriber.follow import Record

from .output import message_record

Event = tuple[dict[str, Any], str]


def feed_record(message: pubsub.PubsubMessage | Record, topic: str) -> dict[str, Any]:
    """A message of a feed for JSON: as any other, with its topic."""
    published = message.publish_time
    if not isinstance(published, datetime):
        published = published.ToDatetime(timezone.utc)
    return {"event": "record", "topic": topic, **message_record(message, published, None)}


def event_of(frame: Gap | CaughtUp | TopicDeleted) -> Event:
    """A frame without messages, as an object for machines and as a remark for people."""
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
        lost = "deleted and made again, its numbers begin anew"
    return record, f"{gap.topic}: {lost}"
