"""Actions that a follower's state machine asks its shell to perform."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from .events import Checkpoint, CloseReason, Event
from .record import Record


@dataclass(frozen=True, slots=True)
class Read:
    """Read the records after a position.

    Attributes:
        after: The position. None asks for the end of the log.
        wait: Seconds to wait for a first record.
    """

    after: Checkpoint | None
    wait: float = 0.0


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Open a stream at the end of the log. The events of the stream carry this number."""

    number: int


@dataclass(frozen=True, slots=True)
class LeaveStream:
    """End the stream with this number. Its later events are ignored."""

    number: int


@dataclass(frozen=True, slots=True)
class Deliver:
    """Pass these records to the handler, one at a time. After that the position is `to`."""

    records: Sequence[Record]
    to: Checkpoint


@dataclass(frozen=True, slots=True)
class Tell:
    """Report an event to the user.

    Attributes:
        event: Creates the event from the wall-clock time, in UTC.
    """

    event: Callable[[datetime], Event]


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for an event, or until this time on the monotonic clock."""

    until: float


@dataclass(frozen=True, slots=True)
class Close:
    """End the follower."""

    reason: CloseReason
    error: BaseException | None


Action: TypeAlias = "Read | OpenStream | LeaveStream | Deliver | Tell | Wait | Close"
