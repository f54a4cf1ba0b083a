"""What a reader of feeds is told: the frames of a watch, one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from protocol.messages import feeds_pb2 as feeds

if TYPE_CHECKING:
    from protocol.messages import pubsub_pb2 as pubsub


@dataclass(frozen=True, slots=True)
class Opened:
    """A stream stands: the first frame of a watch, and of each connection after it.

    topics: where each topic goes on, with its newest and its oldest number and its epoch.
    """

    topics: Mapping[str, feeds.Frame.Start] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Records:
    """Messages of one topic, in order, none twice.

    messages: as they came over the wire; the id of each is its number. They share memory.
    from_seq, to_seq: what was looked at, the first number excluded. What is in between and not
        among the messages was kept back by the filter, or deleted on purpose.
    head_seq: the newest number of the topic when this was sent.
    """

    topic: str
    messages: Sequence[pubsub.PubsubMessage] = field(repr=False)
    from_seq: int
    to_seq: int
    head_seq: int


class GapReason(Enum):
    """Why messages cannot be read any more; values are the wire's."""

    UNKNOWN = 0
    CAP = 1
    TTL = 2
    # Some by a cap, some by age.
    MIXED = 3
    # The reader came with a position that was too old already.
    FROM_SEQ_TOO_OLD = 4
    # The topic was deleted and made again since the position was learned.
    RECREATED = 5
    # A router's source has lost them before they were forwarded.
    SOURCE_TRIM = 6

    @classmethod
    def _missing_(cls, value: object) -> GapReason:
        """What a later broker may send."""
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages of one topic that will not come, from `from_seq` to `to_seq`, both included.

    cause: with the reason FROM_SEQ_TOO_OLD, what had removed them; UNKNOWN with any other.
    earliest_seq, head_seq: the oldest number that can be read, and the newest.
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
    """There is no more in this topic at the moment.

    head_seq: its newest number. time: when the broker found so, in UTC. What a follower tells is
    another class, `subscriber.follow.CaughtUp`.
    """

    topic: str
    head_seq: int
    time: datetime


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """Nothing more will come of this topic."""

    topic: str


Frame: TypeAlias = Opened | Records | Gap | CaughtUp | TopicDeleted


def frame_of(wire: feeds.Frame) -> Frame | None:
    """What the frame tells; None of a heartbeat, and of what a later broker may send."""
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
    return Gap(
        wire.topic,
        wire.from_seq,
        wire.to_seq,
        GapReason(wire.reason),
        GapReason(wire.cause),
        wire.earliest_seq,
        wire.head_seq,
    )
