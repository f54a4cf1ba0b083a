"""One subscriber as the publisher knows it."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from protocol.errors import RpcError

from .few import Few
from .index import Interest
from .item import Item
from .limits import ChannelLimits
from .mailbox import Mailbox


class Poll:
    """A long poll under way.

    wake: called with it once, when it is to be answered; at once, if that is so from the first.
    is_ready: whether that is so.
    is_void: it is answered with nothing: a later one has taken its place, or the session is over.
    error: what it ends with instead of an answer.
    """

    __slots__ = ("error", "is_ready", "is_void", "max_bytes", "max_items", "session", "wake")

    def __init__(
        self, session: Session, max_items: int, max_bytes: int, wake: Callable[[Poll], None]
    ) -> None:
        self.session = session
        self.max_items = max_items
        self.max_bytes = max_bytes
        self.wake = wake
        self.is_ready = False
        self.is_void = False
        self.error: RpcError | None = None

    def answer(self) -> None:
        if not self.is_ready:
            self.is_ready = True
            self.wake(self)


class Session:
    """A subscriber's interests, its mailbox, and its poll, for one life.

    subscriber: its owner and its id.
    incarnation: the number of this life.
    batch_no: of the last batch of commands that was applied.
    last_active: when the subscriber last gave a sign of life, on the monotonic clock.
    """

    __slots__ = ("batch_no", "incarnation", "interests", "last_active", "mailbox", "poll",
                 "subscriber")  # fmt: skip

    def __init__(
        self,
        subscriber: tuple[Hashable, str],
        incarnation: int,
        limits: ChannelLimits,
        now: float,
    ) -> None:
        self.subscriber = subscriber
        self.incarnation = incarnation
        self.batch_no = 0
        self.interests: Few[Interest] = ()
        self.mailbox = Mailbox(limits)
        self.poll: Poll | None = None
        self.last_active = now

    def deliver(self, item: Item) -> int:
        """Put an item into the mailbox; returns how many were dropped for it."""
        dropped = self.mailbox.add(item)
        if self.poll is not None:
            self.poll.answer()
        return dropped

    def park(self, poll: Poll) -> None:
        """Take a poll; one that is there already is answered empty."""
        older, self.poll = self.poll, poll
        if older is not None:
            older.is_void = True
            older.answer()

    def flush(self) -> None:
        """Let the poll be answered with what there is."""
        if self.poll is not None:
            self.poll.answer()

    def close(self, error: RpcError | None) -> None:
        """It is over: the poll ends with nothing, or with `error`."""
        if self.poll is not None:
            self.poll.error = error
            self.poll.is_void = True
            self.poll.answer()

    def wants(self, item: Item) -> bool:
        """Whether an item in its mailbox is still to be delivered. A failure always is."""
        interests = self.interests
        return (
            item.is_failure
            or (item.channel, item.key) in interests
            or (item.channel, None) in interests
        )
