"""One push subscription: its messages go out, and the answers decide on them."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable

from emulator.engine import Consumer, Delivery, Engine
from emulator.engine.settings import MAX_ACK_DEADLINE
from emulator.engine.subscription import Subscription
from protocol.errors import RpcError

from . import envelope
from .pace import Pace
from .sender import Sender
from .timer import Alarm, Timer

_log = logging.getLogger("pullstream.emulator")


class Pusher:
    """Delivers the messages of one subscription by HTTP, on the event loop of the engine.

    It has slots. Each is a consumer of the engine that takes one message at a time, posts it, and
    acknowledges it or gives it up by what the endpoint says, or by its silence until the ack
    deadline. So the engine's own rules give the rest: messages of one ordering key go to whoever
    holds the one before, which is to say one after the other; failures count towards dead letters;
    a retry policy spaces the retries. As many slots are opened as are busy, up to the window.

    Args:
        wall: the wall time.
        on_end: called once, when the last slot has gone.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        *,
        sender: Sender,
        timer: Timer,
        wall: Callable[[], float],
        on_end: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._name = name
        self._sender = sender
        self._timer = timer
        self._wall = wall
        self._on_end = on_end
        self._pace = Pace()
        self._paused: Alarm | None = None
        self._closing = False
        self._slots: dict[asyncio.Task[None], asyncio.Event] = {}
        self._busy = 0
        self._open_slot()

    def start_afresh(self) -> None:
        """The endpoint is another one: what was learned of the old one does not hold."""
        self._pace = Pace()
        if self._paused is not None:
            self._timer.cancel(self._paused)
            self._resume()

    def close(self) -> None:
        """Begin nothing more; requests under way may end."""
        self._closing = True
        self._wake_all()

    async def stop(self) -> None:
        """Cut off what is under way; the messages are given back to the subscription."""
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
        # The ack deadline is kept by `_deliver`, so that a pause begins before the retry can.
        consumer = Consumer(ack_deadline=MAX_ACK_DEADLINE, wake=woken.set, is_push=True)
        try:
            subscription = self._engine.join(self._name, consumer)
        except RpcError:
            # Gone, or for pull by now.
            return
        try:
            while consumer.closed is None and not self._closing:
                woken.clear()
                if self._busy >= self._pace.window:
                    # The busy ones go on as they become free; this one is too many.
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
        settle = functools.partial(self._settle, ack_id, self._pace, self._pace.round)

        def give_up() -> None:
            if posting.cancel():
                settle(was_taken=False)

        alarm = self._timer.call_after(subscription.config.ack_deadline_seconds, give_up)
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
            settle(was_taken=self._was_taken(posting))

    def _was_taken(self, posting: asyncio.Task[bool]) -> bool:
        if (error := posting.exception()) is not None:
            # A fault of ours. The message comes again, as after any failure.
            _log.error("%s: a message could not be posted", self._name, exc_info=error)
            return False
        return posting.result()

    def _settle(self, ack_id: str, pace: Pace, begun_in: int, *, was_taken: bool) -> None:
        try:
            if was_taken:
                pace.succeeded(begun_in)
                self._engine.acknowledge(self._name, [ack_id])
                return
            pause = pace.failed(begun_in)
            # A retry policy spaces the retries of each message by itself.
            retry_policy = self._engine.get_subscription(self._name).HasField("retry_policy")
            if pause and pace is self._pace and not retry_policy:
                self._paused = self._timer.call_after(pause, self._resume)
            self._engine.modify_ack_deadline(self._name, [ack_id], 0)
        except RpcError:
            _log.debug("%s: deleted while a message was posted", self._name)

    # ---- pauses --------------------------------------------------------------------------------

    def _resume(self) -> None:
        self._paused = None
        self._wake_all()

    def _wake_all(self) -> None:
        for woken in self._slots.values():
            woken.set()
