"""Core of a publisher of channels as pure logic: sessions, subscriptions and timeouts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Hashable
from itertools import islice

from pullstream_protocol.errors import InvalidArgument, ResourceExhausted, RpcError
from pullstream_protocol.messages import channels_pb2 as channels
from pullstream_protocol.messages import encoded_pb2 as encoded

from .index import Few, Index, Interest, with_item, without_item
from .limits import (
    MAX_REPLY_BYTES,
    MAX_REPLY_ITEMS,
    ChannelLimits,
    check_commands,
    check_poll,
    check_subscriber_id,
    unknown_channel,
)
from .mailbox import EncodedEntry
from .session import Poll, Session
from .statistics import ChannelStatistics, SessionStatistics


class ChannelCore:
    """The sessions of subscribers, the index of their subscriptions, and the sequence numbers.

    Not thread-safe: one owner makes all calls. `now` is the monotonic time. No method waits: a poll
    that has to wait is kept, and its `wake` is called when it can be finished.

    A session is identified by the subscriber's ID and its `owner`, the authenticated caller. So a
    caller who knows another caller's ID cannot use that session. Without authentication, the owner
    is None.

    Args:
        limits: See ChannelLimits.
        new_incarnation: Returns a random 64-bit number other than 0.
        channels: The allowed channel names. None allows all names.
        on_due: Called with a time when something becomes due and nothing was due before. `advance`
            must be called at that time.
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
        # A poll is answered by the first sweep after the timeout, up to one interval later.
        self.longest_poll = limits.subscriber_timeout + limits.sweep_interval
        self._limits = limits
        self._new_incarnation = new_incarnation
        self._channels = channels
        self._sessions: dict[tuple[Hashable, str], Session] = {}
        self._index: Index[Session] = Index()
        # Whether a channel has a subscription. A bound method, because each publish calls it.
        self.is_wanted = self._index.__contains__
        self._seq = 0
        self._dropped = 0
        self._next_sweep: float | None = None

    # ---- publishing ----------------------------------------------------------------------------

    def publish(self, channel: str, key: str, encode: Callable[[int], bytes]) -> int:
        """Deliver a message to its subscribers. Without subscribers it is lost.

        Args:
            channel: The name of the channel.
            key: The ordering key. "" if the message has none.
            encode: Returns the serialized PubsubMessage, given its sequence number. Called only if
                there are subscribers.

        Returns:
            The number of subscribers.
        """
        subscribers = list(self._index.of_key(channel, key))
        if not subscribers:
            self.check_channel(channel)
            self._seq += 1
            return 0
        item = EncodedEntry.of_message(self._seq + 1, channel, key, encode(self._seq + 1))
        if item.size > self._limits.mailbox_bytes:
            raise InvalidArgument(
                f"message_size: the message has {item.size} bytes; the limit of a mailbox is "
                f"{self._limits.mailbox_bytes} bytes."
            )
        self._seq = item.seq
        self._deliver(item, subscribers)
        return len(subscribers)

    def pass_over(self, count: int) -> None:
        """Count messages of channels that have no subscription."""
        self._seq += count

    def publish_failure(self, channel: str, key: str | None, reason: str) -> int:
        """Send a failure to the subscribers of a key, or of a whole channel.

        If a key fails, subscriptions to the whole channel continue and do not receive the failure.

        Args:
            channel: The name of the channel.
            key: The ordering key. None: the whole channel, with all its keys.
            reason: The text for the subscribers.

        Returns:
            The number of subscribers that receive the failure.
        """
        self.check_channel(channel)
        index = self._index
        addressed = index.of_channel(channel) if key is None else index.only_key(channel, key)
        self._deliver(self._failure(channel, key, reason), addressed)
        return len(addressed)

    def channel_gone(self, channel: str, reason: str) -> None:
        """End all subscriptions of a channel that does not exist any more, with a failure."""
        for session in self._index.of_channel(channel):
            for interest in [each for each in session.interests if each[0] == channel]:
                self._remove(session, interest)
            self._deliver(self._failure(channel, None, reason), [session])

    def check_channel(self, channel: str) -> None:
        """Raise InvalidArgument if the channel does not exist."""
        if self._channels is not None and channel not in self._channels:
            raise unknown_channel(channel)

    def _failure(self, channel: str, key: str | None, reason: str) -> EncodedEntry:
        self._seq += 1
        return EncodedEntry.of_failure(self._seq, channel, key, reason)

    def _deliver(self, item: EncodedEntry, sessions: list[Session]) -> None:
        for session in sessions:
            self._dropped += session.deliver(item)
            if session.mailbox.has_lost_failure:
                # Without this failure, the subscriber would wait for messages that never come. So
                # its session ends, and it learns that it has to subscribe again.
                self._end(session)

    # ---- subscribers ---------------------------------------------------------------------------

    def commands(
        self, request: channels.CommandsRequest, now: float, owner: Hashable = None
    ) -> channels.CommandsResponse:
        """Apply a batch of commands, completely or not at all.

        A batch is not applied if it names another incarnation of the session, unless it replaces
        all subscriptions. A batch whose number is not above the last one is a repeat, which was
        applied before; it is answered and not applied again.

        Args:
            request: The request.
            now: The current monotonic time.
            owner: See the class.
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
        """Check the commands; return whether each interest is wanted. The last command counts."""
        final: dict[Interest, bool] = {}
        for command in request.commands:
            key = command.key if command.HasField("key") else None
            # Unsubscribing from a channel that does not exist is not an error.
            if command.subscribe:
                self.check_channel(command.channel)
            # All subscribers share one string. Otherwise ten thousand of them would keep a copy.
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
        removed = [each for each in session.interests if replace and not final.get(each, False)]
        removed += [each for each, want in final.items() if not want and each in session.interests]
        for interest in removed:
            self._remove(session, interest)
        for interest, want in final.items():
            if want:
                session.interests = with_item(session.interests, interest)
                self._index.add(session, interest)
        if removed and len(session.mailbox):
            session.mailbox.discard(lambda item: not session.wants(item))

    def _remove(self, session: Session, interest: Interest) -> None:
        session.interests = without_item(session.interests, interest)
        self._index.remove(session, interest)

    def unregister(self, subscriber_id: str, owner: Hashable = None) -> None:
        """Drop a subscriber if it is known. Its poll is answered."""
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
        """Begin a long poll. It may come before the first commands.

        A poll that names another incarnation of the session is ready at once, so that its caller
        learns the current one.

        Args:
            request: The request.
            now: The current monotonic time.
            wake: Called with the poll when it is ready for `finish_poll`.
            owner: See the class.
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
        """Return the response of a poll: the items in the mailbox. Raises the poll's error."""
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
        """Remove a poll whose caller is gone.

        The session stays, and its timeout starts again: the caller was there until now, and may
        reconnect.
        """
        if poll.session.poll is poll:
            poll.session.poll = None
            poll.session.last_active = now

    # ---- life and time -------------------------------------------------------------------------

    def next_due(self) -> float | None:
        """Return the time at which `advance` is due; None if there are no sessions."""
        return self._next_sweep

    def advance(self, now: float) -> None:
        """Check for silent subscribers.

        If a silent subscriber has a waiting poll, the poll is answered: a live subscriber polls
        again. If it has none, its session is dropped.
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
        """Drop all subscribers. Their polls end with an empty response, or with `error`."""
        for session in list(self._sessions.values()):
            self._end(session, error)

    def statistics(self) -> ChannelStatistics:
        """Return totals over the present sessions, and the counts since the start."""
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

    def sessions(self, most: int) -> list[SessionStatistics]:
        """Return the statistics of the sessions; of the `most` oldest ones if there are more."""
        return [
            SessionStatistics(
                id=session.subscriber[1],
                channels=tuple(sorted({channel for channel, _ in session.interests})),
                keys=len(session.interests),
                waiting=len(session.mailbox),
                is_polling=session.poll is not None,
            )
            for session in islice(self._sessions.values(), most)
        ]

    def _begin(self, subscriber: tuple[Hashable, str], now: float) -> Session:
        if len(self._sessions) >= self._limits.sessions:
            raise ResourceExhausted(
                f"The publisher has {len(self._sessions)} subscribers, which is its limit."
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
