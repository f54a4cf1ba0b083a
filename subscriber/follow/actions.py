"""What the machine of a follower wants done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from .events import Checkpoint, CloseReason, Event
from .record import Record


@dataclass(frozen=True, slots=True)
class Read:
    """Read what comes after a position (None: ask where the end is), waiting so many seconds for a
    first record."""

    after: Checkpoint | None
    wait: float = 0.0


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Open a stream at the end of the log. Its events bear this number."""

    number: int


@dataclass(frozen=True, slots=True)
class LeaveStream:
    """End that stream; nothing it brings is wanted any more."""

    number: int


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand these records over, one after the other; then everything up to `to` is done."""

    records: Sequence[Record]
    to: Checkpoint


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell the user. `event` makes it of the wall time, in UTC."""

    event: Callable[[datetime], Event]


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for an event, or for this moment on the monotonic clock."""

    until: float


@dataclass(frozen=True, slots=True)
class Close:
    """It is over."""

    reason: CloseReason
    error: BaseException | None


Action: TypeAlias = "Read | OpenStream | LeaveStream | Deliver | Tell | Wait | Close"
