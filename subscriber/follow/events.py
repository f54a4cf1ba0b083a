"""What a follower tells beside the records: how far it is, what it has missed, why it ended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Literal, TypeAlias

from subscriber.feeds.frames import Gap as Gap

FallCause = Literal["overflow", "stream lost", "silence", "gap", "topic deleted"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A position in a topic's log: just after the record numbered `seq`; 0 is before the first.

    epoch: of which life of the topic, as one that was deleted and made again numbers anew. 0: not
        known.
    """

    seq: int
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Every record there was has been handled, up to `position`; new ones come as they are
    appended. time: when that was found, in UTC.

    The frame of this name, `subscriber.feeds.CaughtUp`, is what a watch is told of each topic.
    """

    position: Checkpoint
    time: datetime


@dataclass(frozen=True, slots=True)
class FellBehind:
    """There may be records that the follower does not get pushed: it reads them, and catches up.

    cause: "overflow": more came than the live buffer holds. "stream lost": the connection or the
        server went away. "silence": not even heartbeats came. "gap": the topic's window has moved
        past the stream. "topic deleted": so it was, and perhaps made again.
    position: of the last record that was handled. time: in UTC.
    """

    position: Checkpoint
    time: datetime
    cause: FallCause


class CloseReason(Enum):
    """Why a follower ended.

    STOPPED: the user asked for it. HANDLER_ERROR: the handler raised. SERVER_GONE: no answer for
    `give_up_after` seconds. TOPIC_DELETED: the topic does not exist, any more or at all.
    CHECKPOINT_ERROR: the position could not be read or kept. ERROR: any other; the server refuses
    the request, for want of permission, say.
    """

    STOPPED = "stopped"
    HANDLER_ERROR = "handler error"
    SERVER_GONE = "server gone"
    TOPIC_DELETED = "topic deleted"
    CHECKPOINT_ERROR = "checkpoint error"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Closed:
    """It is over: told once, last of all. error: what ended it; None when the user did.

    position: of the last record that was handled. time: in UTC.
    """

    reason: CloseReason
    error: BaseException | None
    position: Checkpoint
    time: datetime


Event: TypeAlias = "CaughtUp | FellBehind | Gap | Closed"
