"""One push subscription: sends its messages, and settles them by the endpoint's responses."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Protocol
from urllib.parse import urlsplit

from pullstream_emulator.due_timer import Alarm, Timer
from pullstream_emulator.engine import Consumer, Delivery, Engine
from pullstream_emulator.engine.delivery.subscription import Subscription
from pullstream_emulator.engine.settings.resource_settings import MAX_ACK_DEADLINE
from pullstream_protocol.errors import RpcError

from . import envelope
from .envelope import PushAnswer, PushRequest

_log = logging.getLogger("pullstream.emulator")

# Called with the subscription, the message, and the text of a PushAnswer.
OnAnswer = Callable[[str, Delivery, str], None]

# Failures in different rounds, without an acceptance between them, after which a warning names the
# endpoint. One failure may concern one message alone.
_OUTAGE_AFTER = 2

# Concurrent requests. Few at first, so that an endpoint that has just started is not overloaded.
FIRST_WINDOW = 4
MAX_WINDOW = 256

# Pause between failed rounds, in seconds.
MIN_PAUSE = 0.1
MAX_PAUSE = 60.0


class Sender(Protocol):
    """An HTTP client."""

    async def post(self, request: PushRequest) -> PushAnswer:
        """Post a request, and return the endpoint's answer. No time limit."""

    async def close(self) -> None:
        """Close every connection."""


class SlowStart:
    """Slow start and backoff of one endpoint, modelled on the real service.

    A success increases the window by one, so that it doubles with every full window of successes. A
    failure halves it and causes a pause: 100 ms at first, twice as long each time, at most 60 s,
    until the next success. A request belongs to the round in which it began, and a failure ends the
    round. Further failures of the same round do not count, and its later successes do not end the
    pauses.
    """

    def __init__(self) -> None:
        self.window = FIRST_WINDOW
        self.round = 0
        self._pause = 0.0

    def succeeded(self, begun_in: int) -> None:
        """Note that the endpoint accepted a request that began in this round."""
        self.window = min(self.window + 1, MAX_WINDOW)
        if begun_in == self.round:
            self._pause = 0.0

    def failed(self, begun_in: int) -> float:
        """Note a failure of a request of this round; return the pause in seconds."""
        if begun_in != self.round:
            return 0.0
        self.round += 1
        self.window = max(self.window // 2, 1)
        self._pause = min(max(2 * self._pause, MIN_PAUSE), MAX_PAUSE)
        return self._pause


class Pusher:
    """Delivers the messages of one subscription by HTTP, on the event loop of the engine.

    A pusher has slots. Each slot is a consumer of the engine. It takes one message at a time, posts
    it, and acknowledges or nacks it according to the response; without a response until the ack
    deadline it nacks. The engine's rules therefore apply: the messages of one ordering key go to
    the slot that holds the message before, so they are posted one after the other; failures count
    towards dead letters; a retry policy delays the retries. There is one more slot than busy ones,
    up to the window.

    Args:
        engine: The engine.
        name: Name of the subscription.
        sender: Posts the requests.
        timer: Timer on the broker's clock.
        wall: Returns the wall time, in seconds.
        on_answer: Called after each request, before the message is settled.
        on_end: Called once, when the last slot has ended.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        *,
        sender: Sender,
        timer: Timer,
        wall: Callable[[], float],
        on_answer: OnAnswer,
        on_end: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._name = name
        self._sender = sender
        self._timer = timer
        self._wall = wall
        self._on_answer = on_answer
        self._on_end = on_end
        self._pace = SlowStart()
        self._failed_rounds = 0
        self._paused: Alarm | None = None
        self._closing = False
        self._slots: dict[asyncio.Task[None], asyncio.Event] = {}
        self._busy = 0
        self._open_slot()

    def start_afresh(self) -> None:
        """Forget the pace of the old endpoint, because the subscription has another one now."""
        self._pace = SlowStart()
        self._failed_rounds = 0
        if self._paused is not None:
            self._timer.cancel(self._paused)
            self._resume()

    def close(self) -> None:
        """Begin no more requests; active ones may finish."""
        self._closing = True
        self._wake_all()

    async def stop(self) -> None:
        """Cancel active requests; their messages return to the subscription."""
        self._closing = True
        slots = list(self._slots)
        for slot in slots:
            slot.cancel()
        await asyncio.gather(*slots, return_exceptions=True)

    # ---- slots ---------------------------------------------------------------------------------

    def _open_slot(self) -> None:
        woken = asyncio.Event()
        slot = asyncio.create_task(self._serve(woken))
        self._slots[slot] = woken
        slot.add_done_callback(self._slot_ended)

    def _slot_ended(self, slot: asyncio.Task[None]) -> None:
        if not slot.cancelled() and (error := slot.exception()) is not None:
            _log.error("%s: push delivery failed", self._name, exc_info=error)
        del self._slots[slot]
        if not self._slots:
            self._on_end()

    async def _serve(self, woken: asyncio.Event) -> None:
        # `_deliver` watches the ack deadline, so that a pause begins before a retry is possible.
        consumer = Consumer(
            ack_deadline=MAX_ACK_DEADLINE, wake=woken.set, is_push=True, client="push"
        )
        try:
            subscription = self._engine.join(self._name, consumer)
        except RpcError:
            # The subscription was deleted, or became a pull subscription.
            return
        try:
            while consumer.closed is None and not self._closing:
                woken.clear()
                if self._busy >= self._pace.window:
                    # Busy slots continue when they become free, so this slot is not needed.
                    return
                taken = []
                if self._paused is None:
                    taken = self._engine.take(subscription, consumer, 1)
                if taken:
                    await self._deliver(subscription, *taken[0])
                else:
                    await woken.wait()
        finally:
            self._engine.leave(subscription, consumer)

    async def _deliver(self, subscription: Subscription, ack_id: str, delivery: Delivery) -> None:
        request = envelope.request(
            subscription.config, delivery.record.encoded, delivery.attempts + 1, self._wall()
        )
        posting = asyncio.create_task(self._sender.post(request))
        settle = functools.partial(self._settle, ack_id, delivery, self._pace, self._pace.round)
        ack_deadline = subscription.config.ack_deadline_seconds

        def give_up() -> None:
            if posting.cancel():
                settle(PushAnswer(False, f"no answer within {ack_deadline} s"))

        alarm = self._timer.call_after(ack_deadline, give_up)
        self._busy += 1
        if self._busy == len(self._slots) < self._pace.window:
            self._open_slot()
        try:
            await asyncio.wait((posting,))
        except asyncio.CancelledError:
            posting.cancel()
            await asyncio.wait((posting,))
            raise
        finally:
            self._busy -= 1
            self._timer.cancel(alarm)
        if not posting.cancelled():
            settle(self._answer_of(posting))

    def _answer_of(self, posting: asyncio.Task[PushAnswer]) -> PushAnswer:
        if (error := posting.exception()) is not None:
            # An error of the broker. The message is redelivered, as after any failure.
            _log.error("%s: a message could not be posted", self._name, exc_info=error)
            return PushAnswer(False, f"failed inside the broker: {error}")
        return posting.result()

    def _settle(
        self, ack_id: str, delivery: Delivery, pace: SlowStart, begun_in: int, answer: PushAnswer
    ) -> None:
        self._on_answer(self._name, delivery, answer.text)
        try:
            if answer.is_accepted:
                pace.succeeded(begun_in)
                if pace is self._pace:
                    self._end_outage()
                self._engine.acknowledge(self._name, [ack_id])
                return
            pause = pace.failed(begun_in)
            if pause and pace is self._pace:
                self._count_failed_round(answer)
            # With a retry policy, each message has its delay, so no pause is needed.
            retry_policy = self._engine.get_subscription(self._name).HasField("retry_policy")
            if pause and pace is self._pace and not retry_policy:
                self._paused = self._timer.call_after(pause, self._resume)
            self._engine.modify_ack_deadline(self._name, [ack_id], 0)
        except RpcError:
            _log.debug("%s: deleted while a message was posted", self._name)

    # ---- outages -------------------------------------------------------------------------------

    def _count_failed_round(self, answer: PushAnswer) -> None:
        self._failed_rounds += 1
        if self._failed_rounds == _OUTAGE_AFTER:
            _log.warning(
                "%s: the push endpoint %s accepts no messages (%s). The broker goes on trying, and "
                "reports when the endpoint accepts one",
                self._name,
                self._endpoint(),
                answer.text,
            )

    def _end_outage(self) -> None:
        if self._failed_rounds >= _OUTAGE_AFTER:
            _log.info(
                "%s: the push endpoint %s accepts messages again", self._name, self._endpoint()
            )
        self._failed_rounds = 0

    def _endpoint(self) -> str:
        """Return the endpoint without its query and its user, which may have a secret."""
        parts = urlsplit(self._engine.get_subscription(self._name).push_config.push_endpoint)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    # ---- pauses --------------------------------------------------------------------------------

    def _resume(self) -> None:
        self._paused = None
        self._wake_all()

    def _wake_all(self) -> None:
        for woken in self._slots.values():
            woken.set()
