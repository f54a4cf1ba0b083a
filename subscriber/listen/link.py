"""The state of one subscriber towards one publisher, as one plain object."""

from __future__ import annotations

import logging
from collections.abc import Callable

from protocol.errors import Aborted, Cancelled, PullstreamError, RpcError
from protocol.messages import channels_pb2 as channels
from subscriber.outage import Outage

from .commands import Batch, Command, CommandQueue
from .interest import Interest
from .notices import Answered, Arrived, ChannelFailure, Dropped, Failed, Notice, Reset
from .retries import REFUSALS, Retries
from .settings import ListenSettings

_log = logging.getLogger("pullstream.listen")

# Who asks for nothing, as his callbacks do not keep up, is heard of once in so many seconds.
# Publishers forget a subscriber after 300.
_SIGN_OF_LIFE = 60.0


class Link:
    """What is subscribed to, what the publisher has been told of it, and what has come of that.

    Not thread-safe: its owner calls it under a lock. It sends nothing itself. `next_batch` and
    `next_poll` give what is to be sent now, one of each at a time; how that ended comes back by
    `batch_*` and `poll_*`, which return what the user is to be told, in order.

    An answer may be late: it counts if it speaks of the life of our session that we know of, or if
    its request did, so that another one is a later one. Else what was asked is asked again.

    Args:
        new_id: makes the name of a subscriber, nobody else's.
    """

    def __init__(self, settings: ListenSettings, *, new_id: Callable[[], str]) -> None:
        self._settings = settings
        self._new_id = new_id
        self._outage = Outage(_log)
        self._interests: dict[tuple[str, str | None], Interest] = {}
        # Those whose subscribe is not answered, some of which may not be wanted any more.
        self._unanswered: dict[Interest, None] = {}
        self._begin_anew()

    def _begin_anew(self) -> None:
        """As one of whom the publisher has never heard: what it has for the old one is not ours."""
        self.subscriber_id: str = self._new_id()
        # Of our session at the publisher; 0: not known yet. And whether it may have one.
        self._incarnation = 0
        self.is_known: bool = False
        self._processed = 0
        self._queue = CommandQueue(self._settings.max_batch)
        self._batch_due = 0.0
        self._batch_retries = Retries(self._settings.give_up_after, self._outage)
        self._sign_due = 0.0
        # The token of the poll under way; an answer to another one comes too late.
        self._polling: object | None = None
        self._poll_due = 0.0
        self._poll_retries = Retries(self._settings.give_up_after, self._outage)

    def __len__(self) -> int:
        return len(self._interests)

    def __contains__(self, channel_and_key: tuple[str, str | None]) -> bool:
        return channel_and_key in self._interests

    # ---- what the user wants -------------------------------------------------------------------

    def subscribe(self, interest: Interest) -> bool:
        """Whether it is new."""
        place = (interest.channel, interest.key)
        if place in self._interests:
            return False
        self._interests[place] = interest
        self._unanswered[interest] = None
        self._queue.add(Command(interest, subscribe=True))
        return True

    def unsubscribe(self, channel: str, key: str | None) -> bool:
        """Whether it was subscribed to. From now on nothing of it is told any more."""
        interest = self._interests.get((channel, key))
        if interest is None:
            return False
        self._forget(interest)
        self._queue.add(Command(interest, subscribe=False))
        return True

    def close(self) -> list[Notice]:
        """Nothing is wanted any more; subscribes without an answer get none."""
        for interest in list(self._interests.values()):
            self._forget(interest)
        self._queue.clear()
        return self._left_unanswered(Cancelled("it was closed before the publisher had answered"))

    def _forget(self, interest: Interest) -> None:
        interest.is_wanted = False
        del self._interests[interest.channel, interest.key]
        if not self._interests:
            # Without subscriptions there is no poll. What one under way may bring stays with the
            # publisher, as nobody says that it has come.
            self._polling = None

    # ---- what is to be sent --------------------------------------------------------------------

    def next_due(self, *, may_poll: bool = True) -> float | None:
        """The moment at which there may be something to send; None: only when something happens."""
        dues = []
        if self._queue.batch is not None and not self._queue.batch.is_sent:
            dues.append(self._batch_due)
        if self._interests and self._polling is None:
            if may_poll:
                dues.append(self._poll_due)
            elif self._queue.batch is None:
                dues.append(self._sign_due)
        return min(dues, default=None)

    def give_sign(self, now: float) -> None:
        """Nothing is to be polled now. If that goes on, a batch without commands tells of us."""
        if self._interests and self._polling is None and now >= self._sign_due:
            self._queue.add_nothing()

    def next_batch(self, now: float) -> tuple[Batch, channels.CommandsRequest] | None:
        """The commands to send now; they are taken to be under way then."""
        batch = self._queue.batch
        if batch is None or batch.is_sent or now < self._batch_due:
            return None
        batch.is_sent = self.is_known = True
        self._batch_retries.begin(now)
        self._sign_due = now + _SIGN_OF_LIFE
        return batch, channels.CommandsRequest(
            subscriber_id=self.subscriber_id,
            incarnation=self._incarnation,
            batch_no=batch.number,
            replace=batch.replace,
            commands=[command.encode() for command in batch.commands],
            newest_only=self._settings.newest_only,
        )

    def next_poll(self, now: float) -> tuple[object, channels.PollRequest] | None:
        """The poll to send now, with its token; it is taken to be under way then."""
        if not self._interests or self._polling is not None or now < self._poll_due:
            return None
        self._polling = token = object()
        self._poll_retries.begin(now)
        self._sign_due = now + _SIGN_OF_LIFE
        self.is_known = True
        return token, channels.PollRequest(
            subscriber_id=self.subscriber_id,
            incarnation=self._incarnation,
            max_processed_seq=self._processed,
        )

    def is_polling(self, token: object) -> bool:
        """Whether that poll is still of interest."""
        return self._polling is token

    def is_sending(self, batch: Batch) -> bool:
        """Whether that batch is still of interest."""
        return self._queue.batch is batch

    # ---- commands ------------------------------------------------------------------------------

    def batch_answered(
        self, batch: Batch, quoted: int, response: channels.CommandsResponse
    ) -> list[Notice]:
        """The publisher has answered a batch whose request named the incarnation `quoted`."""
        if batch is not self._queue.batch:
            return []
        self._batch_retries.succeeded()
        notices: list[Notice] = []
        if self._is_stale(quoted, response.incarnation):
            self._queue.failed()
            return []
        if response.incarnation != self._incarnation:
            # A batch that replaces has told the new session everything already.
            knows_all = batch.replace and response.applied
            notices += self._meet(response.incarnation, knows_all=knows_all)
        for command in self._queue.applied():
            if command.subscribe:
                notices += self._answer(command.interest, None)
        return notices

    def batch_failed(self, batch: Batch, error: RpcError, now: float) -> list[Notice]:
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

    def _answer(self, interest: Interest, error: PullstreamError | None) -> list[Notice]:
        if interest not in self._unanswered:
            return []
        del self._unanswered[interest]
        interest.is_answered = error is None
        return [Answered(interest, error)]

    # ---- polls ---------------------------------------------------------------------------------

    def poll_answered(
        self, token: object, quoted: int, response: channels.PollResponse
    ) -> list[Notice]:
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
            # What was processed before may come again, when an answer was lost.
            if item.seq > self._processed:
                self._processed = item.seq
                notices += self._receive(item)
        return notices

    def poll_failed(self, token: object, error: RpcError, now: float) -> list[Notice]:
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
            # A message is for one: for its key's, before that of the whole channel.
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
        """Our session has another life than we thought: what the old one knew is over."""
        is_first = self._incarnation == 0
        self._incarnation = incarnation
        self._processed = 0
        if is_first:
            return []
        # What it may still bring is of an earlier life.
        self._polling = None
        interests = self._interests.values()
        was_told = any(interest.is_answered for interest in interests)
        notices: list[Notice] = [Reset()] if was_told else []
        if not knows_all:
            self._queue.reset(interests)
            for interest in [each for each in self._unanswered if not each.is_wanted]:
                notices += self._answer(interest, Aborted("it was unsubscribed from meanwhile"))
        return notices

    def _give_up(self, error: RpcError) -> list[Notice]:
        """The publisher is gone: every subscription ends with `error`."""
        failed = list(self._interests.values())
        for interest in failed:
            self._forget(interest)
        notices = self._left_unanswered(error)
        self._begin_anew()
        return [*notices, *(Failed(interest, error) for interest in failed)]

    def _left_unanswered(self, error: PullstreamError) -> list[Notice]:
        return [n for interest in list(self._unanswered) for n in self._answer(interest, error)]
