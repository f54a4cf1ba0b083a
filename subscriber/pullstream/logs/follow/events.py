"""Events of a follower: its progress, the gaps in its records, and its end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Literal, TypeAlias

from pullstream.logs.feeds.frames import Gap as Gap

FellBehindCause = Literal["overflow", "stream lost", "silence", "gap", "topic deleted"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A position in a topic's log.

    Attributes:
        seq: The sequence number of the record just before the position. 0 is before the first
            record.
        epoch: Identifies the topic among topics of the same name. A topic that is deleted and
            created again starts its numbers from 1 and has another epoch. 0: not known.
    """

    seq: int
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """All records up to the end of the log have been handled. New ones come as they are appended.

    `pullstream.feeds.CaughtUp` is a different class: a frame of a watch.

    Attributes:
        position: The position of the follower.
        time: The time of the event, in UTC.
    """

    position: Checkpoint
    time: datetime


@dataclass(frozen=True, slots=True)
class FellBehind:
    """The stream may miss records. The follower reads them until it has caught up again.

    Attributes:
        position: The position of the last handled record.
        time: The time of the event, in UTC.
        cause: "overflow": more records came than the live buffer holds. "stream lost": the
            connection or the server failed. "silence": the server sent nothing, not even
            heartbeats. "gap": the feed discarded records before the stream delivered them. "topic
            deleted": the topic was deleted, and perhaps created again.
    """

    position: Checkpoint
    time: datetime
    cause: FellBehindCause


class CloseReason(Enum):
    """Reason why a follower ended.

    Attributes:
        STOPPED: The user stopped it.
        HANDLER_ERROR: The handler raised an error.
        SERVER_GONE: The server did not answer for `give_up_after` seconds.
        TOPIC_DELETED: The topic does not exist. It was deleted, or has never existed.
        CHECKPOINT_ERROR: The position could not be read or saved.
        ERROR: Any other error. For example, the server refuses the request because of missing
            permissions.
    """

    STOPPED = "stopped"
    HANDLER_ERROR = "handler error"
    SERVER_GONE = "server gone"
    TOPIC_DELETED = "topic deleted"
    CHECKPOINT_ERROR = "checkpoint error"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Closed:
    """The follower has ended: reported once, as the last event.

    Attributes:
        reason: The reason of the end.
        error: The error that ended the follower. None if the user stopped it.
        position: The position of the last handled record.
        time: The time of the event, in UTC.
    """

    reason: CloseReason
    error: BaseException | None
    position: Checkpoint
    time: datetime


Event: TypeAlias = "CaughtUp | FellBehind | Gap | Closed"
