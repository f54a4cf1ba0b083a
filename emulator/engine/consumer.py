"""Somebody who takes messages: an open streaming pull, or one waiting Pull call."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from .ordering import LaneQueue

if TYPE_CHECKING:
    from protocol.errors import RpcError


class Consumer:
    """What a subscription knows of one consumer.

    ack_deadline: seconds that a lease granted to it lasts.
    max_messages, max_bytes: how much it wants outstanding at a time; 0 or less means no limit. The
        message that crosses max_bytes is still delivered, so a large one cannot block for ever.
    is_pull: it is a Pull call; of those only so many may wait at a time.
    is_push: it sends messages to the endpoint of a push subscription.
    wake: called when there may be something to take (or `closed` was set) after a take came back
        empty. It must only make a note of it: the engine is in the middle of its work.
    closed: why the subscription wants it gone; None while all is well.
    """

    __slots__ = (
        "ack_deadline",
        "asleep",
        "closed",
        "is_pull",
        "is_push",
        "lanes",
        "max_bytes",
        "max_messages",
        "outstanding_bytes",
        "outstanding_messages",
        "wake",
    )

    def __init__(
        self,
        *,
        ack_deadline: int,
        wake: Callable[[], None],
        max_messages: int = 0,
        max_bytes: int = 0,
        is_pull: bool = False,
        is_push: bool = False,
    ) -> None:
        self.ack_deadline = ack_deadline
        self.wake = wake
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.is_pull = is_pull
        self.is_push = is_push
        self.outstanding_messages = 0
        self.outstanding_bytes = 0
        # Keys of which it holds leases and that have more to deliver: only it may take those.
        self.lanes = LaneQueue()
        # Its last take came back empty and it has not been woken since.
        self.asleep = False
        self.closed: RpcError | None = None

    @property
    def has_room(self) -> bool:
        return self.room > 0 and self.room_bytes > 0

    @property
    def room(self) -> int:
        """How many messages more it wants."""
        if self.max_messages <= 0:
            return sys.maxsize
        return self.max_messages - self.outstanding_messages

    @property
    def room_bytes(self) -> float:
        """It wants messages until they have this many bytes or more."""
        if self.max_bytes <= 0:
            return math.inf
        return self.max_bytes - self.outstanding_bytes
