"""A publisher of channels as one plain object: sessions, who wants what, and time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Hashable

from protocol.errors import InvalidArgument, ResourceExhausted, RpcError
from protocol.messages import channels_pb2 as channels
from protocol.messages import encoded_pb2 as encoded

from .checks import check_commands, check_poll, check_subscriber_id, unknown_channel
from .few import Few, minus, plus
from .index import Index, Interest
from .item import Item
from .limits import MAX_REPLY_BYTES, MAX_REPLY_ITEMS, ChannelLimits
from .session import Poll, Session
from .statistics import ChannelStatistics


class Hub:
    """Sessions of subscribers, the index of their interests, and the numbers of what is published.

    Not thread-safe: one owner makes every call, `now` being a moment on the monotonic clock. It
    never waits: a poll that has to is parked, and its `wake` tells when it can be finished.

    A subscriber is known by its id and its `owner`, who is whoever makes its calls: nobody comes by
    another one's session, though he may know the id. Where everybody may do everything it is None.

    Args:
        new_incarnation: a random number other than 0, of 64 bits.
        channels: those that there are; None: any.
        on_due: called with a moment when something becomes due though nothing was; `advance` is to
            be called then.
    """

    def __init__(
        self,
        limits: ChannelLimits,
        *,
        new_incarnation: Callable[[], int],
        channels: Container[str] | None = None,
        on_due: Callable[[float], None] = lambda due: None,
    ) -> None:
        self.on_due = on_due
        # The sweep that finds a poll silent may be the one after it has become so.
        self.longest_poll = limits.subscriber_timeout + limits.sweep_interval
        self._limits = limits
        self._new_incarnation = new_incarnation
        self._channels = channels
        self._sessions: dict[tuple[Hashable, str], Session] = {}
        self._index: Index[Session] = Index()
        # Whether anybody is subscribed to anything of a channel. Asked for each publish: one call.
        self.is_wanted = self._index.__contains__
        self._seq = 0
        self._dropped = 0
        self._next_sweep: float | None = None

    # ---- publishing ----------------------------------------------------------------------------

    def publish(self, channel: str, key: str, encode: Callable[[int], bytes]) -> int:
        """Give a message to its subscribers; returns how many they are. Without any it is lost.

        encode: makes the serialized PubsubMessage, given its number; called if somebody wants it.
        """
        subscribers = list(self._index.of_key(channel, key))
        if not subscribers:
            self.check_channel(channel)
            self._seq += 1
            return 0
        item = Item.of_message(self._seq + 1, channel, key, encode(self._seq + 1))
        if item.size > self._limits.mailbox_bytes:
            raise InvalidArgument(
                f"message_size: a message of {item.size} bytes is more than a mailbox may hold, "
                f"which is {self._limits.mailbox_bytes} bytes."
            )
        self._seq = item.seq
        self._deliver(item, subscribers)
        return len(subscribers)

    def pass_over(self, count: int) -> None:
        """Count messages of channels that nobody is subscribed to."""
        self._seq += count

    def publish_failure(self, channel: str, key: str | None, reason: str) -> int:
        """Tell the subscribers of a key, or of a whole channel (None), that nothing more will come.

        Of a key these are those of that very key; who listens to the whole channel goes on. Returns
        how many were told.
        """
        self.check_channel(channel)
        index = self._index
        told = index.of_channel(channel) if key is None else index.only_key(channel, key)
        self._deliver(self._failure(channel, key, reason), told)
        return len(told)

    def channel_gone(self, channel: str, reason: str) -> None:
        """A channel is no more: its subscribers are told, and subscribed to nothing of it."""
        for session in self._index.of_channel(channel):
            for interest in [each for each in session.interests if each[0] == channel]:
                self._remove(session, interest)
            self._deliver(self._failure(channel, None, reason), [session])

    def check_channel(self, channel: str) -> None:
        """Raise InvalidArgument if there is no such channel."""
        if self._channels is not None and channel not in self._channels:
            raise unknown_channel(channel)

    def _failure(self, channel: str, key: str | None, reason: str) -> Item:
        self._seq += 1
        return Item.of_failure(self._seq, channel, key, reason)

    def _deliver(self, item: Item, sessions: list[Session]) -> None:
        for session in sessions:
            self._dropped += session.deliver(item)
            if session.mailbox.has_lost_failure:
                # It would take for alive what has failed. So it is to begin anew, which it is told.
                self._end(session)

    # ---- subscribers ---------------------------------------------------------------------------

    def commands(
        self, request: channels.CommandsRequest, now: float, owner: Hashable = None
    ) -> channels.CommandsResponse:
        """Apply a batch of commands, whole or not at all.

        Not applied: one that names another life of the session, unless it replaces all there is;
        and one that comes late (its number was reached before), which was applied then.
        """
        check_commands(request)
        subscriber = (owner, request.subscriber_id)
        session = self._sessions.get(subscriber)
        known = 0 if session is None else session.incarnation
        is_meant = request.replace or (known != 0 and request.incarnation == known)
        is_late = session is not None and request.batch_no <= session.batch_no
        final: dict[Interest, bool] = {}
        if is_meant and not is_late:
            final = self._final(request, session)
        session = session or self._begin(subscriber, now)
        session.last_active = now
        if is_meant and not is_late:
            session.batch_no = request.batch_no
            if request.newest_only:
                session.mailbox.keep_newest_only()
            self._apply(session, final, replace=request.replace)
        return channels.CommandsResponse(incarnation=session.incarnation, applied=is_meant)

    def _final(
        self, request: channels.CommandsRequest, session: Session | None
    ) -> dict[Interest, bool]:
        """What is to become of each interest, checked. Of several commands the last one counts."""
        final: dict[Interest, bool] = {}
        for command in request.commands:
            key = command.key if command.HasField("key") else None
            # Unsubscribing from what is not there is nothing to complain about.
            if command.subscribe:
                self.check_channel(command.channel)
            # One text for all who name it: ten thousand subscribers would have as many.
            final[sys.intern(command.channel), key] = command.subscribe
        held: Few[Interest] = () if session is None or request.replace else session.interests
        wanted = sum(each not in final for each in held) + sum(final.values())
        if wanted > self._limits.interests:
            raise ResourceExhausted(
                f"commands: the subscriber would have {wanted} subscriptions; the limit is "
                f"{self._limits.interests}."
            )
        return final

    def _apply(self, session: Session, final: dict[Interest, bool], *, replace: bool) -> None:
        gone = [each for each in session.interests if replace and not final.get(each, False)]
        gone += [each for each, want in final.items() if not want and each in session.interests]
        for interest in gone:
            self._remove(session, interest)
        for interest, want in final.items():
            if want:
                session.interests = plus(session.interests, interest)
                self._index.add(session, interest)
        if gone and len(session.mailbox):
            session.mailbox.discard(lambda item: not session.wants(item))

    def _remove(self, session: Session, interest: Interest) -> None:
        session.interests = minus(session.interests, interest)
        self._index.remove(session, interest)

    def unregister(self, subscriber_id: str, owner: Hashable = None) -> None:
        """Forget a subscriber, if it is known; its poll is answered."""
        session = self._sessions.get((owner, check_subscriber_id(subscriber_id)))
        if session is not None:
            self._end(session)

    # ---- polls ---------------------------------------------------------------------------------

    def begin_poll(
        self,
        request: channels.PollRequest,
        now: float,
        wake: Callable[[Poll], None],
        owner: Hashable = None,
    ) -> Poll:
        """Take a long poll. When `wake` is called, with it, it is ready to be finished.

        It may come before the first commands. One that names another life of the session is ready
        at once: its caller has to learn of the present one.
        """
        check_poll(request)
        subscriber = (owner, request.subscriber_id)
        session = self._sessions.get(subscriber) or self._begin(subscriber, now)
        session.last_active = now
        poll = Poll(
            session,
            min(request.max_messages or MAX_REPLY_ITEMS, MAX_REPLY_ITEMS),
            min(request.max_bytes or MAX_REPLY_BYTES, MAX_REPLY_BYTES),
            wake,
        )
        session.park(poll)
        if request.incarnation == session.incarnation:
            session.mailbox.acknowledge(request.max_processed_seq)
        elif request.incarnation:
            poll.answer()
        if session.mailbox.has_news:
            poll.answer()
        return poll

    def finish_poll(self, poll: Poll, now: float) -> encoded.EncodedPollResponse:
        """The answer of a poll: what there is by now. Raises what it is to end with instead."""
        session = poll.session
        if poll.error is not None:
            raise poll.error
        if poll.is_void:
            return encoded.EncodedPollResponse(incarnation=session.incarnation)
        session.poll = None
        session.last_active = now
        return encoded.EncodedPollResponse(
            incarnation=session.incarnation,
            items=session.mailbox.next_items(poll.max_items, poll.max_bytes),
        )

    def withdraw_poll(self, poll: Poll, now: float) -> None:
        """Its caller is gone, but was there until now: a cut connection is not yet a death."""
        if poll.session.poll is poll:
            poll.session.poll = None
            poll.session.last_active = now

    # ---- life and time -------------------------------------------------------------------------

    def next_due(self) -> float | None:
        """When `advance` has something to do."""
        return self._next_sweep

    def advance(self, now: float) -> None:
        """Look for subscribers that gave no sign of life.

        A poll under way is answered; whoever is still there polls again. Without one the subscriber
        is gone, and everything about it forgotten.
        """
        if self._next_sweep is None or now < self._next_sweep:
            return
        for session in list(self._sessions.values()):
            if now - session.last_active < self._limits.subscriber_timeout:
                continue
            if session.poll is None:
                self._end(session)
            else:
                session.last_active = now
                session.flush()
        self._next_sweep = now + self._limits.sweep_interval if self._sessions else None

    def clear(self, error: RpcError | None = None) -> None:
        """Forget all subscribers. Their polls end with nothing, or with `error`."""
        for session in list(self._sessions.values()):
            self._end(session, error)

    def statistics(self) -> ChannelStatistics:
        sessions = self._sessions.values()
        return ChannelStatistics(
            subscribers=len(sessions),
            parked=sum(session.poll is not None for session in sessions),
            interests=len(self._index),
            waiting=sum(len(session.mailbox) for session in sessions),
            waiting_bytes=sum(session.mailbox.size for session in sessions),
            published=self._seq,
            dropped=self._dropped,
        )

    def _begin(self, subscriber: tuple[Hashable, str], now: float) -> Session:
        if len(self._sessions) >= self._limits.sessions:
            raise ResourceExhausted(
                f"There are {len(self._sessions)} subscribers, and no more are allowed."
            )
        session = Session(subscriber, self._new_incarnation(), self._limits, now)
        self._sessions[subscriber] = session
        if self._next_sweep is None:
            self._next_sweep = now + self._limits.sweep_interval
            self.on_due(self._next_sweep)
        return session

    def _end(self, session: Session, error: RpcError | None = None) -> None:
        del self._sessions[session.subscriber]
        for interest in session.interests:
            self._index.remove(session, interest)
        session.close(error)
