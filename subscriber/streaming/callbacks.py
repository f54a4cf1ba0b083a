"""The way of a message through its callback, and what its end means for its ordering key."""

from __future__ import annotations

import inspect
import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from protocol.clock import Clock
from subscriber.message import Message, MessageBatch, Verdict
from subscriber.scheduler import Scheduler

from .batcher import Batcher
from .messages_on_hold import MessagesOnHold

_log = logging.getLogger("pullstream.subscriber")

_FAILED = (Verdict.NACK, Verdict.DROP)


class CallbackRunner:
    """Hands messages to the scheduler, in the order that their keys ask for.

    Owns the count of callbacks that raised, and the ordered messages whose callback has returned
    without a verdict. `begin` is called by the consumer's thread (with exactly-once delivery by the
    dispatcher's), `settled` by the dispatcher's; the rest runs on the workers, or on the event loop
    of an asynchronous callback.

    Guarantees: a message settled before its turn comes is not run; one whose callback raises is
    nacked, unless it was settled; the next message of a key begins after the callback of the one
    before has ended (and, if the user wants it so, after its verdict), and not before that one
    comes again if it failed.

    Args:
        nack: give back messages that no callback has seen or will settle.
        stop: end the subscription; called when there is no place to run callbacks any more.
    """

    def __init__(
        self,
        callback: Callable[[Any], Any],
        scheduler: Scheduler,
        hold: MessagesOnHold,
        *,
        nack: Callable[[Sequence[Message]], None],
        stop: Callable[[Exception], None],
        release_after_ack: bool = False,
    ) -> None:
        self._callback = callback
        self._scheduler = scheduler
        self._hold = hold
        self._nack = nack
        self._stop = stop
        self._release_after_ack = release_after_ack
        self._keeps_order = False
        # A dict as a set: a message leaves it by `pop`, which tells one thread only that it was in.
        self._without_verdict: dict[Message, bool] = {}
        self._errors_lock = threading.Lock()
        self.errors = 0
        is_async = is_coroutine_function(callback)
        self._run_any = self._await_any if is_async else self._call_any
        self._run_in_order = self._await_in_order if is_async else self._call_in_order

    def start(self) -> None:
        """Start the threads that it needs beside the scheduler's: none."""

    def begin(self, messages: list[Message], *, in_order: bool) -> None:
        """Run the callback for each, now or when its key allows."""
        self._keeps_order = in_order
        if in_order:
            offered = self._hold.offer(messages)
            if offered.refuse:
                # A shutdown may have given them back while the server confirmed them.
                self._nack([message for message in offered.refuse if message.settled is None])
            messages = offered.run
        self._submit(messages, in_order)

    def close(self) -> list[Message]:
        """Begin nothing any more; returns what was gathered here and not given to the scheduler."""
        return []

    @property
    def waiting(self) -> int:
        """Messages gathered here."""
        return 0

    def settled(
        self, acked: Sequence[Message], nacked: Sequence[Message], dropped: Sequence[Message]
    ) -> None:
        """Messages got their verdict, inside their callback or later."""
        if not self._keeps_order:
            return
        for message in itertools.chain(nacked, dropped):
            if message.ordering_key:
                self._nack(self._hold.failed(message))
        if self._without_verdict:
            for message in itertools.chain(acked, nacked, dropped):
                if self._without_verdict.pop(message, False):
                    self._begin_next(message)

    def lost(self, messages: Sequence[Message]) -> None:
        """The leases of messages are over, and they are marked as dropped."""
        self._nack(self._hold.lost(messages))
        for message in messages:
            # Its verdict, for which its key has waited, would come too late if at all.
            if self._without_verdict.pop(message, False):
                self._nack(self._hold.failed(message))
                self._begin_next(message)

    def _submit(self, messages: list[Message], in_order: bool) -> None:
        run = self._run_in_order if in_order else self._run_any
        self._scheduler.schedule_many(run, messages)

    # ---- one callback --------------------------------------------------------------------------

    def _call_any(self, message: Message) -> None:
        if message.settled is not None:
            # Given up or given back while it waited for a worker: it is not ours any more.
            return
        try:
            self._callback(message)
        except BaseException:
            # SystemExit too: a callback cannot end the subscription, only its own message.
            self._raised(message)

    async def _await_any(self, message: Message) -> None:
        if message.settled is not None:
            return
        try:
            await self._callback(message)
        except BaseException:
            # A cancelled one as well: its task ends with it.
            self._raised(message)

    def _call_in_order(self, message: Message) -> None:
        self._call_any(message)
        self._ended(message)

    async def _await_in_order(self, message: Message) -> None:
        await self._await_any(message)
        self._ended(message)

    def _raised(self, message: Message) -> None:
        self._count_error()
        _log.exception("callback raised for message %s, which is nacked", message.message_id)
        if message.settled is None:
            message.nack()

    def _count_error(self) -> None:
        with self._errors_lock:
            self.errors += 1

    # ---- the turns of a key --------------------------------------------------------------------

    def _ended(self, message: Message) -> None:
        """A callback of a subscription that keeps order has ended."""
        if not message.ordering_key:
            return
        if self._release_after_ack and message.settled is None:
            # First into the dict, then another look: a verdict that comes in between is seen by
            # the dispatcher's thread, or here; whoever takes the message out goes on.
            self._without_verdict[message] = True
            if message.settled is None or not self._without_verdict.pop(message, False):
                return
        if message.settled in _FAILED:
            self._nack(self._hold.failed(message))
        self._begin_next(message)

    def _begin_next(self, message: Message) -> None:
        following = self._hold.ended(message)
        if following is None:
            return
        try:
            self._submit([following], in_order=True)
        except Exception as error:
            # Without a place to run callbacks there is no going on. The shutdown gives it back.
            self._stop(error)


class BatchRunner(CallbackRunner):
    """A CallbackRunner whose callback takes lists.

    Of one key a list may hold several messages, in order, as long as no other list holds any: the
    first is let go by MessagesOnHold as ever, those behind it join it when the list is about to be
    handled. The turn of a key ends with the list.
    """

    def __init__(
        self,
        callback: Callable[[MessageBatch], Any],
        scheduler: Scheduler,
        hold: MessagesOnHold,
        *,
        nack: Callable[[Sequence[Message]], None],
        stop: Callable[[Exception], None],
        clock: Clock,
        max_messages: int,
        max_latency: float,
    ) -> None:
        super().__init__(callback, scheduler, hold, nack=nack, stop=stop)
        self._max_messages = max_messages
        is_async = is_coroutine_function(callback)
        self._run_list = self._await_list if is_async else self._call_list
        self._batcher = Batcher(
            clock, max_messages=max_messages, max_latency=max_latency, ready=self._ready
        )

    def start(self) -> None:
        self._batcher.start()

    def close(self) -> list[Message]:
        return self._batcher.close()

    @property
    def waiting(self) -> int:
        return len(self._batcher)

    def _submit(self, messages: list[Message], in_order: bool) -> None:
        # A list that is filled from behind its keys need not wait for others.
        behind = sum(self._hold.waiting_behind(m) for m in messages) if in_order else 0
        rest = len(messages) % self._max_messages
        is_filled = behind > 0 and rest + behind >= self._max_messages
        self._batcher.add(messages, is_urgent=is_filled)

    def _ready(self, messages: list[Message]) -> None:
        try:
            self._scheduler.schedule(self._run_list, messages)
        except Exception as error:
            self._stop(error)

    def _call_list(self, messages: list[Message]) -> None:
        batch = self._fill(messages)
        if batch:
            try:
                self._callback(batch)
            except BaseException:
                self._list_raised(batch)
        self._list_ended(messages, batch)

    async def _await_list(self, messages: list[Message]) -> None:
        batch = self._fill(messages)
        if batch:
            try:
                await self._callback(batch)
            except BaseException:
                self._list_raised(batch)
        self._list_ended(messages, batch)

    def _fill(self, messages: list[Message]) -> MessageBatch:
        batch = MessageBatch([message for message in messages if message.settled is None])
        if self._keeps_order:
            for message in list(batch):
                room = self._max_messages - len(batch)
                if room > 0 and message.ordering_key:
                    batch += self._hold.take_behind(message, room)
        return batch

    def _list_raised(self, batch: MessageBatch) -> None:
        self._count_error()
        _log.exception("callback raised for %d messages; those not settled are nacked", len(batch))
        for message in batch:
            if message.settled is None:
                message.nack()

    def _list_ended(self, messages: list[Message], batch: MessageBatch) -> None:
        if not self._keeps_order:
            return
        # One turn a key, which ends with its last message here.
        last: dict[str, Message] = {}
        for message in (*messages, *batch):
            if message.ordering_key:
                last[message.ordering_key] = message
                if message.settled in _FAILED:
                    self._nack(self._hold.failed(message))
        for message in last.values():
            self._ended(message)


def is_coroutine_function(callback: object) -> bool:
    """Whether `callback` is an `async def`, or an object whose `__call__` is one."""
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(
        getattr(callback, "__call__", None)  # noqa: B004
    )
