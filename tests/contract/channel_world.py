"""A simulated publisher and subscriber of channels on an unreliable network, without threads.

The state machines are the real ones: `ChannelCore` and `ListenSession`. The network between them
loses and delays requests and replies, and repeats requests, some of them minutes later. The
publisher restarts, and the subscriber sleeps for longer than its timeout. One random seed
determines everything, so a run can be repeated. The promises of channels are checked during the run
and at its end; `Broken` reports a broken promise.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable
from typing import Any

from pullstream.listen.events import Reset
from pullstream.listen.session import ListenSession, ListenSettings
from pullstream.listen.subscription import Answered, Arrived, ChannelSubscription, Notice
from pullstream_protocol.channels import ChannelLimits
from pullstream_protocol.channels.core import ChannelCore
from pullstream_protocol.channels.session import Poll
from pullstream_protocol.errors import Unavailable
from pullstream_protocol.messages import channels_pb2 as channels
from pullstream_protocol.messages import pubsub_pb2 as pubsub

CHANNEL = "c"
KEYS = ("a", "b", None)
LIMITS = ChannelLimits()
SETTINGS = ListenSettings(give_up_after=None, max_batch=3)

# Per 100 requests or replies: the number of lost ones, of late replies, and of requests that are
# repeated later.
LOST, DELAYED, REPEATED = 12, 8, 8
# Seconds: the normal latency, the latency of delayed messages, and the length of the subscriber's
# sleep.
ON_THE_WAY = (0.001, 0.3)
LATE = ((0.5, 3.0), (30.0, 60.0), (100.0, 700.0))
ASLEEP = ((1.0, 50.0), (350.0, 800.0))
# Seconds until all delayed messages have arrived and a waiting poll is answered.
SETTLING = 1600.0


class Broken(AssertionError):
    """A promise of channels was broken."""


class World:
    """One run. Tests pass mutants as `hub` and `link`."""

    def __init__(
        self,
        seed: int,
        *,
        hub: type[ChannelCore] = ChannelCore,
        link: type[ListenSession] = ListenSession,
        actions: int = 40,
    ) -> None:
        self._random = random.Random(seed)
        self._incarnations = itertools.count(1)
        self._hub_class = hub
        self._hub = self._new_hub()
        self._link = link(SETTINGS, new_id=lambda: "subscriber")
        self._actions = actions
        self._now = 0.0
        self._asleep_until = 0.0
        self._is_calm = False
        self._ties = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._polls_under_way = 0
        # The published messages, the received numbers, and the time of each confirmed subscription.
        self._numbers = itertools.count(1)
        self._published: list[tuple[int, float, str]] = []
        self._came: list[int] = []
        self._confirmed: dict[ChannelSubscription, float] = {}
        self._unanswered: set[ChannelSubscription] = set()
        # Losses are excused until this time: a reset was reported, and everything is subscribed
        # again.
        self._excused_until = -1.0
        self._is_resetting = False

    def run(self) -> None:
        for _ in range(self._actions):
            self._random.choices(
                (self._subscribe, self._unsubscribe, self._publish, self._restart, self._sleep),
                (6, 4, 20, 1, 2),
            )[0]()
            self._pass(self._random.choice((0.0, 0.01, 0.2, 1.0, 10.0)))
        self._is_calm = True
        self._pass(SETTLING)
        self._check_final_state()
        for key in [key for key in KEYS if (CHANNEL, key) in self._link]:
            # For a subscription to the whole channel, use a key that has no subscription.
            self._publish(key or "z")
        self._pass(5.0)
        self._check_losses()

    # ---- actions -------------------------------------------------------------------------------

    def _new_hub(self) -> ChannelCore:
        return self._hub_class(LIMITS, new_incarnation=lambda: next(self._incarnations))

    def _subscribe(self) -> None:
        interest = ChannelSubscription(CHANNEL, self._random.choice(KEYS), on_message=print)
        if self._link.subscribe(interest):
            self._unanswered.add(interest)
            self._send()

    def _unsubscribe(self) -> None:
        key = self._random.choice(KEYS)
        for interest in [i for i in self._confirmed if i.key == key]:
            del self._confirmed[interest]
        self._link.unsubscribe(CHANNEL, key)
        self._send()

    def _publish(self, key: str | None = None) -> None:
        key = key or self._random.choice(("a", "b", "z"))
        number = next(self._numbers)
        data = str(number).encode()
        self._published.append((number, self._now, key))
        self._hub.publish(
            CHANNEL, key, lambda seq: pubsub.PubsubMessage(data=data).SerializeToString()
        )

    def _restart(self) -> None:
        old, self._hub = self._hub, self._new_hub()
        old.clear(Unavailable("restarted"))

    def _sleep(self) -> None:
        self._asleep_until = self._now + self._random.uniform(*self._random.choice(ASLEEP))

    # ---- time ----------------------------------------------------------------------------------

    def _pass(self, seconds: float) -> None:
        end = self._now + seconds
        while True:
            sweep = self._hub.next_due()
            moment = self._events[0][0] if self._events else math.inf
            if sweep is not None and sweep <= min(moment, end):
                self._now = max(self._now, sweep)
                self._hub.advance(self._now)
            elif moment <= end:
                self._now, _, event = heapq.heappop(self._events)
                event()
            else:
                self._now = end
                return

    def _after(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self._now + seconds, next(self._ties), event))

    # ---- the network ---------------------------------------------------------------------------

    def _send(self) -> None:
        if self._now < self._asleep_until:
            self._after(self._asleep_until - self._now, self._send)
            return
        batch, poll = self._link.next_batch(self._now), self._link.next_poll(self._now)
        if batch is not None:
            sent, commands = batch
            self._call(
                commands,
                self._commands,
                lambda reply: self._link.batch_answered(sent, commands.incarnation, reply),
                lambda error: self._link.batch_failed(sent, error, self._now),
            )
        if poll is not None:
            token, request = poll
            self._call(
                request,
                self._poll,
                lambda reply: self._link.poll_answered(token, request.incarnation, reply),
                lambda error: self._link.poll_failed(token, error, self._now),
            )
        due = self._link.next_due()
        if due is not None and due > self._now:
            self._after(due - self._now, self._send)

    def _call(
        self,
        request: Any,
        serve: Callable[[Any, Callable[[Any], None]], None],
        answered: Callable[[Any], list[Notice]],
        failed: Callable[[Unavailable], list[Notice]],
    ) -> None:
        def come(reply: Any) -> None:
            self._wake_for(lambda: failed(reply) if _is_error(reply) else answered(reply))

        def reply_with(reply: Any) -> None:
            lost = self._is_hit(LOST)
            way = self._late() if self._is_hit(DELAYED) else self._way()
            self._after(way, lambda: come(Unavailable("lost") if lost else reply))

        if self._is_hit(REPEATED):
            self._after(self._late(), lambda: serve(request, lambda reply: None))
        if self._is_hit(LOST):
            self._after(self._way(), lambda: come(Unavailable("lost")))
        else:
            self._after(self._way(), lambda: serve(request, reply_with))

    def _is_hit(self, percent: int) -> bool:
        return not self._is_calm and self._random.random() * 100 < percent

    def _way(self) -> float:
        return self._random.uniform(*ON_THE_WAY)

    def _late(self) -> float:
        return self._random.uniform(*self._random.choice(LATE))

    def _wake_for(self, take: Callable[[], list[Notice]]) -> None:
        """Deliver an answer to the subscriber now, or when it wakes up."""
        if self._now < self._asleep_until:
            self._after(self._asleep_until - self._now, lambda: self._wake_for(take))
            return
        self._tell(take())
        self._send()
        if self._is_resetting and not len(self._link._queue):
            self._is_resetting = False
            self._excused_until = self._now

    # ---- the publisher's side ------------------------------------------------------------------

    def _commands(
        self, request: channels.CommandsRequest, reply_with: Callable[[Any], None]
    ) -> None:
        reply_with(self._hub.commands(request, self._now))

    def _poll(self, request: channels.PollRequest, reply_with: Callable[[Any], None]) -> None:
        hub = self._hub

        def finish(poll: Poll) -> None:
            try:
                encoded = hub.finish_poll(poll, self._now)
            except Unavailable as error:
                reply_with(error)
                return
            reply_with(channels.PollResponse.FromString(encoded.SerializeToString()))

        # The answer leaves a moment later, as in reality, and includes messages published until
        # then.
        hub.begin_poll(request, self._now, lambda poll: self._after(0.0005, lambda: finish(poll)))

    # ---- promises ------------------------------------------------------------------------------

    def _tell(self, notices: list[Notice]) -> None:
        for notice in notices:
            if isinstance(notice, Arrived):
                self._arrived(notice)
            elif isinstance(notice, Answered):
                if notice.interest not in self._unanswered:
                    raise Broken("a subscribe was answered twice")
                self._unanswered.discard(notice.interest)
                if notice.interest.is_wanted and notice.error is None:
                    self._confirmed[notice.interest] = self._now
            elif isinstance(notice, Reset):
                self._is_resetting = True

    def _arrived(self, arrived: Arrived) -> None:
        interest, item = arrived
        number = int(item.message.data)
        if self._came and number <= self._came[-1]:
            raise Broken(f"{number} came after {self._came[-1]}")
        if not interest.is_wanted or interest.key not in (item.key, None):
            raise Broken(f"{number} came to somebody who has not asked for it")
        self._came.append(number)

    def _check_final_state(self) -> None:
        wanted = {(CHANNEL, key) for key in KEYS if (CHANNEL, key) in self._link}
        known = self._hub._sessions.get((None, "subscriber"))
        told = set(() if known is None else known.interests)
        if told != wanted:
            raise Broken(f"wanted is {wanted}, the publisher knows {told}")
        if self._unanswered:
            raise Broken("a subscribe was never answered")

    def _check_losses(self) -> None:
        excused = self._now if self._is_resetting else self._excused_until
        came = set(self._came)
        for number, when, key in self._published:
            for interest, confirmed in self._confirmed.items():
                due = interest.key in (key, None) and when > max(confirmed, excused)
                if due and number not in came:
                    raise Broken(f"{number}, of {when:.1f}, was lost without a word")


def _is_error(reply: object) -> bool:
    return isinstance(reply, Unavailable)
