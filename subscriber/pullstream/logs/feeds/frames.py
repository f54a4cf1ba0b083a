"""Frames that a watch delivers to its handler, as immutable values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from pullstream_protocol.messages import feeds_pb2 as feeds

if TYPE_CHECKING:
    from pullstream_protocol.messages import pubsub_pb2 as pubsub


@dataclass(frozen=True, slots=True)
class Opened:
    """A stream is open: the first frame of a watch, and of each later connection.

    Attributes:
        topics: For each topic, the position from which it continues, its newest and oldest sequence
            numbers, and its epoch.
    """

    topics: Mapping[str, feeds.Frame.Start] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Records:
    """Messages of one topic, in order and without duplicates.

    Attributes:
        topic: The full name of the topic.
        messages: The messages as they came over the wire. The ID of each message is its sequence
            number. The messages share memory.
        from_seq: The number before the first number that was examined.
        to_seq: The last number that was examined. Numbers in this range that have no message were
            removed by the filter, or deleted on purpose.
        head_seq: The newest number of the topic when the frame was sent.
    """

    topic: str
    messages: Sequence[pubsub.PubsubMessage] = field(repr=False)
    from_seq: int
    to_seq: int
    head_seq: int


class GapReason(Enum):
    """Reason why messages cannot be read any more. The values are the numbers on the wire."""

    UNKNOWN = 0
    CAP = 1
    TTL = 2
    # Some messages were removed by a cap, some because of their age.
    MIXED = 3
    # The position that the reader asked for was already too old.
    FROM_SEQ_TOO_OLD = 4
    # The topic was deleted and created again after the reader learned the position.
    RECREATED = 5
    # The source of a router lost the messages before they were forwarded.
    SOURCE_TRIM = 6

    @classmethod
    def _missing_(cls, value: object) -> GapReason:
        """Map reasons of newer brokers to UNKNOWN."""
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class Gap:
    """A range of messages of one topic that cannot be delivered.

    Attributes:
        topic: The full name of the topic.
        from_seq: The first missing number.
        to_seq: The last missing number.
        reason: The reason why the messages are missing.
        cause: With the reason FROM_SEQ_TOO_OLD, the reason why the messages were removed. UNKNOWN
            with any other reason.
        earliest_seq: The oldest number that can be read.
        head_seq: The newest number of the topic.
    """

    topic: str
    from_seq: int
    to_seq: int
    reason: GapReason
    cause: GapReason
    earliest_seq: int
    head_seq: int


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """The topic has no more messages at the moment.

    Followers report this with another class, `pullstream.follow.CaughtUp`.

    Attributes:
        topic: The full name of the topic.
        head_seq: The newest number of the topic.
        time: The time at which the broker reached the end of the topic, in UTC.
    """

    topic: str
    head_seq: int
    time: datetime


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """The topic was deleted: the watch delivers no more frames of it."""

    topic: str


Frame: TypeAlias = Opened | Records | Gap | CaughtUp | TopicDeleted


def frame_of(wire: feeds.Frame) -> Frame | None:
    """Convert a frame from the wire; None for heartbeats and for frames of newer brokers."""
    kind = wire.WhichOneof("kind")
    if kind == "messages":
        some = wire.messages
        return Records(some.topic, some.messages, some.from_seq, some.to_seq, some.head_seq)
    if kind == "caught_up":
        caught_up = wire.caught_up
        time = caught_up.time.ToDatetime(tzinfo=timezone.utc)
        return CaughtUp(caught_up.topic, caught_up.head_seq, time)
    if kind == "gap":
        return gap_of(wire.gap)
    if kind == "opened":
        return Opened(wire.opened.topics)
    if kind == "topic_deleted":
        return TopicDeleted(wire.topic_deleted.topic)
    return None


def gap_of(wire: feeds.Gap) -> Gap:
    """Convert a gap from the wire."""
    return Gap(
        wire.topic,
        wire.from_seq,
        wire.to_seq,
        GapReason(wire.reason),
        GapReason(wire.cause),
        wire.earliest_seq,
        wire.head_seq,
    )
