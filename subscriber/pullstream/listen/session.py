"""Session of one subscriber with one publisher, as pure logic."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from pullstream.runtime.outage_reporter import OutageReporter
from pullstream.runtime.retry_clock import RetryClock
from pullstream.streaming.stream import PROVEN_AFTER, TERMINAL_CODES
from pullstream_protocol.errors import (
    Aborted,
    Cancelled,
    DeadlineExceeded,
    Internal,
    PullstreamError,
    RpcError,
)
from pullstream_protocol.messages import channels_pb2 as channels

from .commands import Command, CommandBatch, CommandQueue
from .events import ChannelFailure, Dropped, Reset
from .subscription import Answered, Arrived, ChannelSubscription, Failed, Notice

_log = logging.getLogger("pullstream.listen")

# While callbacks are too slow and polling is paused, a keep-alive is sent at this interval, in
# seconds. Publishers drop a subscriber that is silent for 300 s.
_KEEPALIVE_INTERVAL = 60.0


# Status codes with which a publisher refuses a command. Any other code is a failure of the
# publisher as a whole.
REFUSALS = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.OUT_OF_RANGE,
    }
)

# The pause before the second attempt, and the longest pause, in seconds.
_FIRST_PAUSE = 0.1
_LAST_PAUSE = 5.0


@dataclass(frozen=True)
class ListenSettings:
    """The user's settings; see `SubscriberClient.listen` for their meaning."""

    newest_only: bool = False
    give_up_after: float | None = 30.0
    poll_timeout: float | None = 360.0
    max_batch: int = 2000


class PollRetries:
    """Schedules the retries of one kind of call, and decides when to give up.

    Args:
        give_up_after: Give up this many seconds after the first failure in a row. None: never.
        outage: Reports outages of the server. Shared with the other kinds of calls.
    """

    def __init__(self, give_up_after: float | None, outage: OutageReporter) -> None:
        self._outage = outage
        self._clock = RetryClock(_FIRST_PAUSE, _LAST_PAUSE, give_up_after)
        self._begun_at = 0.0

    def begin(self, now: float) -> None:
        """Record the start of an attempt."""
        self._begun_at = now

    def succeeded(self) -> None:
        """Record a success: the next failure begins again with the shortest pause."""
        self._clock.succeeded()
        self._outage.over()

    def failed(self, error: RpcError, now: float) -> float | None:
        """Record a failure; return the time of the next attempt, or None to give up."""
        if error.grpc_status_code in TERMINAL_CODES:
            return None
        if now - self._begun_at >= PROVEN_AFTER and not isinstance(error, DeadlineExceeded):
            # The call has reached the server: it lasted long, and proxies cut idle connections. But
            # DEADLINE_EXCEEDED is a failure, because a healthy server answers before the deadline.
            self.succeeded()
        self._outage.failed(now, error)
        return self._clock.failed(now)


class ListenSession:
    """The subscriptions, the commands that the publisher has not applied, and the received data.

    Not thread-safe: the owner calls it under a lock. It makes no calls. `next_batch` and
    `next_poll` return the requests to send now; at most one of each is running. The owner passes
    the results to the `batch_*` and `poll_*` methods, which return the events for the user, in
    order.

    The publisher's session has an incarnation number. It changes when the publisher restarts or
    drops the session. A response may be late: it counts if its incarnation is the current one. It
    also counts if its request named the current one, because another incarnation is then a newer
    one. Any other response is ignored, and the request is sent again.

    Args:
        settings: The user's settings.
        new_id: Returns a unique name for the subscriber.
    """

    def __init__(self, settings: ListenSettings, *, new_id: Callable[[], str]) -> None:
        self._settings = settings
        self._new_id = new_id
        self._outage = OutageReporter(_log)
        self._interests: dict[tuple[str, str | None], ChannelSubscription] = {}
        # Subscriptions that the publisher has not answered. Some may have been ended by the user.
        self._unanswered: dict[ChannelSubscription, None] = {}
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Start with a new subscriber ID, so that data for the old one is not received."""
        self.subscriber_id: str = self._new_id()
        # The incarnation of the publisher's session; 0 if it is not known yet.
        self._incarnation = 0
        # Whether a request was sent, so that the publisher may have a session.
        self.is_known: bool = False
        self._processed = 0
        self._queue = CommandQueue(self._settings.max_batch)
        self._batch_due = 0.0
        self._batch_retries = PollRetries(self._settings.give_up_after, self._outage)
        self._keepalive_due = 0.0
        # The token of the running poll. Responses to other polls are ignored.
        self._polling: object | None = None
        self._poll_due = 0.0
        self._poll_retries = PollRetries(self._settings.give_up_after, self._outage)

    def __len__(self) -> int:
        return len(self._interests)

    def __contains__(self, channel_and_key: tuple[str, str | None]) -> bool:
        return channel_and_key in self._interests

    # ---- requests of the user ------------------------------------------------------------------

    def subscribe(self, interest: ChannelSubscription) -> bool:
        """Add a subscription; return whether it is new."""
        channel_and_key = (interest.channel, interest.key)
        if channel_and_key in self._interests:
            return False
        self._interests[channel_and_key] = interest
        self._unanswered[interest] = None
        self._queue.add(Command(interest, subscribe=True))
        return True

    def unsubscribe(self, channel: str, key: str | None) -> bool:
        """End a subscription; return whether it existed. It receives no more events."""
        interest = self._interests.get((channel, key))
        if interest is None:
            return False
        self._forget(interest)
        self._queue.add(Command(interest, subscribe=False))
        return True

    def close(self, fault: BaseException | None = None) -> list[Notice]:
        """End all subscriptions; unanswered ones are reported as cancelled.

        Args:
            fault: The error that ended the listener. All subscriptions are then reported as failed.
                None: the user closed it.
        """
        ended = list(self._interests.values())
        for interest in ended:
            self._forget(interest)
        self._queue.clear()
        if fault is None:
            return self._left_unanswered(
                Cancelled("the listener was closed before the publisher had answered")
            )
        error = Internal(f"the listener has ended because of {fault!r}")
        error.__cause__ = fault
        notices = self._left_unanswered(error)
        return [*notices, *(Failed(interest, error) for interest in ended)]

    def _forget(self, interest: ChannelSubscription) -> None:
        interest.is_wanted = False
        del self._interests[interest.channel, interest.key]
        if not self._interests:
            # Without subscriptions there is no poll, so the running one is ignored. Its messages
            # stay at the publisher, because they are never acknowledged.
            self._polling = None

    # ---- requests to send ----------------------------------------------------------------------

    def next_due(self, *, may_poll: bool = True) -> float | None:
        """Return the time of the next request; None if only an event can cause one."""
        dues = []
        if self._queue.batch is not None and not self._queue.batch.is_sent:
            dues.append(self._batch_due)
        if self._interests and self._polling is None:
            if may_poll:
                dues.append(self._poll_due)
            elif self._queue.batch is None:
                dues.append(self._keepalive_due)
        return min(dues, default=None)

    def give_sign(self, now: float) -> None:
        """Queue a keep-alive (an empty batch) if polling has been paused long enough."""
        if self._interests and self._polling is None and now >= self._keepalive_due:
            self._queue.add_nothing()

    def next_batch(self, now: float) -> tuple[CommandBatch, channels.CommandsRequest] | None:
        """Return the commands to send now, and record that they are being sent."""
        batch = self._queue.batch
        if batch is None or batch.is_sent or now < self._batch_due:
            return None
        batch.is_sent = self.is_known = True
        self._batch_retries.begin(now)
        self._keepalive_due = now + _KEEPALIVE_INTERVAL
        return batch, channels.CommandsRequest(
            subscriber_id=self.subscriber_id,
            incarnation=self._incarnation,
            batch_no=batch.number,
            replace=batch.replace,
            commands=[command.encode() for command in batch.commands],
            newest_only=self._settings.newest_only,
        )

    def next_poll(self, now: float) -> tuple[object, channels.PollRequest] | None:
        """Return the poll to send now with its token, and record that it is running."""
        if not self._interests or self._polling is not None or now < self._poll_due:
            return None
        self._polling = token = object()
        self._poll_retries.begin(now)
        self._keepalive_due = now + _KEEPALIVE_INTERVAL
        self.is_known = True
        return token, channels.PollRequest(
            subscriber_id=self.subscriber_id,
            incarnation=self._incarnation,
            max_processed_seq=self._processed,
        )

    def is_polling(self, token: object) -> bool:
        """Return whether the result of that poll is still wanted."""
        return self._polling is token

    def is_sending(self, batch: CommandBatch) -> bool:
        """Return whether the result of that batch is still wanted."""
        return self._queue.batch is batch

    # ---- commands ------------------------------------------------------------------------------

    def batch_answered(
        self, batch: CommandBatch, quoted: int, response: channels.CommandsResponse
    ) -> list[Notice]:
        """Process the response to a batch; return the events for the user.

        Args:
            batch: The batch.
            quoted: The incarnation in the request.
            response: The response.
        """
        if batch is not self._queue.batch:
            return []
        self._batch_retries.succeeded()
        notices: list[Notice] = []
        if self._is_stale(quoted, response.incarnation):
            self._queue.failed()
            return []
        if response.incarnation != self._incarnation:
            # A replacing batch has already sent all subscriptions to the new session.
            knows_all = batch.replace and response.applied
            notices += self._meet(response.incarnation, knows_all=knows_all)
        for command in self._queue.applied():
            if command.subscribe:
                notices += self._answer(command.interest, None)
        return notices

    def batch_failed(self, batch: CommandBatch, error: RpcError, now: float) -> list[Notice]:
        """Process the error of a batch's call; return the events for the user."""
        if batch is not self._queue.batch:
            return []
        if error.grpc_status_code in REFUSALS:
            self._batch_retries.succeeded()
            return self._refuse(error)
        due = self._batch_retries.failed(error, now)
        if due is None:
            return self._give_up(error)
        self._batch_due = due
        self._queue.failed()
        return []

    def _refuse(self, error: RpcError) -> list[Notice]:
        culprit = self._queue.refused()
        if culprit is None or not culprit.subscribe:
            return []
        interest = culprit.interest
        notices = self._answer(interest, error)
        if interest.is_wanted:
            self._forget(interest)
            notices.append(Failed(interest, error))
        return notices

    def _answer(self, interest: ChannelSubscription, error: PullstreamError | None) -> list[Notice]:
        if interest not in self._unanswered:
            return []
        del self._unanswered[interest]
        interest.is_answered = error is None
        return [Answered(interest, error)]

    # ---- polls ---------------------------------------------------------------------------------

    def poll_answered(
        self, token: object, quoted: int, response: channels.PollResponse
    ) -> list[Notice]:
        """Process the response to a poll; return the events for the user.

        Args:
            token: The token of the poll.
            quoted: The incarnation in the request.
            response: The response.
        """
        if token is not self._polling:
            return []
        self._polling = None
        self._poll_retries.succeeded()
        if self._is_stale(quoted, response.incarnation):
            return []
        notices: list[Notice] = []
        if response.incarnation != self._incarnation:
            notices += self._meet(response.incarnation, knows_all=False)
        for item in response.items:
            # An item may come twice if a response was lost.
            if item.seq > self._processed:
                self._processed = item.seq
                notices += self._receive(item)
        return notices

    def poll_failed(self, token: object, error: RpcError, now: float) -> list[Notice]:
        """Process the error of a poll; return the events for the user."""
        if token is not self._polling:
            return []
        self._polling = None
        due = self._poll_retries.failed(error, now)
        if due is None:
            return self._give_up(error)
        self._poll_due = due
        return []

    def _receive(self, item: channels.PollResponse.Item) -> list[Notice]:
        kind = item.WhichOneof("kind")
        if kind == "message":
            interests = self._interests
            # A message goes to one subscription: its key's, or else the one of the whole channel.
            interest = interests.get((item.channel, item.key))
            interest = interest or interests.get((item.channel, None))
            return [] if interest is None else [Arrived(interest, item)]
        if kind == "failure":
            return self._fail(item)
        return [Dropped(item.dropped)] if kind == "dropped" else []

    def _fail(self, item: channels.PollResponse.Item) -> list[Notice]:
        key = item.key if item.HasField("key") else None
        error = ChannelFailure(item.channel, key, item.failure)
        keyed = self._interests.get((item.channel, key))
        failed = [] if keyed is None else [keyed]
        if key is None:
            failed = [each for each in self._interests.values() if each.channel == item.channel]
        for interest in failed:
            self.unsubscribe(interest.channel, interest.key)
        return [Failed(interest, error) for interest in failed]

    # ---- the publisher as a whole --------------------------------------------------------------

    def _is_stale(self, quoted: int, incarnation: int) -> bool:
        return self._incarnation not in (quoted, incarnation)

    def _meet(self, incarnation: int, *, knows_all: bool) -> list[Notice]:
        """Process a new incarnation of the session: the publisher has lost the old one.

        Args:
            incarnation: The new incarnation.
            knows_all: Whether the new session already has all subscriptions.
        """
        is_first = self._incarnation == 0
        self._incarnation = incarnation
        self._processed = 0
        if is_first:
            return []
        # The running poll belongs to the old incarnation.
        self._polling = None
        interests = self._interests.values()
        was_answered = any(interest.is_answered for interest in interests)
        notices: list[Notice] = [Reset()] if was_answered else []
        if not knows_all:
            self._queue.reset(interests)
            for interest in [each for each in self._unanswered if not each.is_wanted]:
                notices += self._answer(
                    interest,
                    Aborted("the subscription was ended before the publisher had answered"),
                )
        return notices

    def _give_up(self, error: RpcError) -> list[Notice]:
        """End every subscription with `error`, because the publisher cannot be reached."""
        failed = list(self._interests.values())
        for interest in failed:
            self._forget(interest)
        notices = self._left_unanswered(error)
        self._begin_anew()
        return [*notices, *(Failed(interest, error) for interest in failed)]

    def _left_unanswered(self, error: PullstreamError) -> list[Notice]:
        return [n for interest in list(self._unanswered) for n in self._answer(interest, error)]
