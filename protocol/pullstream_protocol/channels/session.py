"""Session of one subscriber, on the publisher's side."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from pullstream_protocol.errors import RpcError

from .index import Few, Interest
from .limits import ChannelLimits
from .mailbox import EncodedEntry, Mailbox


class Poll:
    """A waiting long poll.

    Attributes:
        session: The session of the subscriber.
        max_items: The most items in the response.
        max_bytes: The most bytes in the response.
        wake: Called once with the poll when it is ready. May be called before `begin_poll` returns.
        is_ready: Whether the poll can be answered.
        is_void: Whether the poll gets an empty response, because a later poll has replaced it or
            the session has ended.
        error: The error with which the poll ends instead of a response.
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
        """Make the poll ready and call `wake`; only the first call has an effect."""
        if not self.is_ready:
            self.is_ready = True
            self.wake(self)


class Session:
    """A subscriber's interests, its mailbox and its poll.

    Attributes:
        subscriber: The owner and the ID of the subscriber.
        incarnation: Identifies this session among the sessions of the same subscriber.
        batch_no: The number of the last batch of commands that was applied.
        interests: The channels and keys that it is subscribed to.
        mailbox: The items that the subscriber has not acknowledged.
        poll: The waiting poll, if there is one.
        last_active: The time of the subscriber's last call, on the monotonic clock.
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

    def deliver(self, item: EncodedEntry) -> int:
        """Put an item into the mailbox; return the number of items that were dropped for it."""
        dropped = self.mailbox.add(item)
        if self.poll is not None:
            self.poll.answer()
        return dropped

    def park(self, poll: Poll) -> None:
        """Keep a poll. An earlier one gets an empty response."""
        older, self.poll = self.poll, poll
        if older is not None:
            older.is_void = True
            older.answer()

    def flush(self) -> None:
        """Let the poll be answered with the items in the mailbox, even if there are none."""
        if self.poll is not None:
            self.poll.answer()

    def close(self, error: RpcError | None) -> None:
        """End the session. The poll ends with an empty response, or with `error`."""
        if self.poll is not None:
            self.poll.error = error
            self.poll.is_void = True
            self.poll.answer()

    def wants(self, item: EncodedEntry) -> bool:
        """Return whether an item in the mailbox must still be delivered. A failure always must."""
        interests = self.interests
        return (
            item.is_failure
            or (item.channel, item.key) in interests
            or (item.channel, None) in interests
        )
