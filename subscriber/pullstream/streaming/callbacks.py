"""Runs callbacks, and applies their results to the ordering keys of the messages."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pullstream.columns.portions import Portion, Unit, messages_of, size_of
from pullstream.message import Disposition, Message, MessageBatch, clear_begun, lose
from pullstream.runtime.callback_kinds import is_coroutine_function, refuse_awaitable
from pullstream.runtime.repeated_errors import RepeatedErrors
from pullstream.scheduling.scheduler import Scheduler
from pullstream_protocol.clock import Clock

from .batcher import Batcher
from .failed_key import Actions
from .messages_on_hold import MessagesOnHold

_log = logging.getLogger("pullstream.subscriber")

# The consequence for a message whose callback raises after it was settled.
_OUTCOMES = {
    Disposition.ACK: "it had acknowledged",
    Disposition.NACK: "it had nacked",
    Disposition.DROP: "it had dropped",
    Disposition.LOST: "had lost its lease",
    Disposition.RETURN: "the shutdown had returned",
}

# Looking up a member in its Enum class or comparing two costs more than an identity check.
_ACK = Disposition.ACK
_FAILED = (Disposition.NACK, Disposition.DROP, Disposition.LOST)


class CallbackListener(Protocol):
    """Carries out the actions that ordering requires. Any thread calls it, without a lock held."""

    def return_messages(self, messages: Sequence[Message]) -> None:
        """Return to the server messages that no callback has seen."""

    def return_dropped(self, messages: Sequence[Message]) -> None:
        """Return dropped messages to the server."""

    def forget(self, messages: Sequence[Message]) -> None:
        """Forget messages that newer deliveries have replaced or will replace."""

    def parked(self, messages: int, size: int) -> None:
        """Change the count of parked messages.

        Args:
            messages: The change in messages; negative when messages leave.
            size: The change in bytes.
        """

    def wait_began(self, due: float) -> None:
        """Arrange a call of `waits_over` at `due`, in seconds on the clock."""

    def stop(self, error: Exception) -> None:
        """End the subscription, because callbacks cannot run any more."""


class CallbackRunner:
    """Hands messages to the scheduler, in the order that their keys require.

    Owns the count of callbacks that raised, and the ordered messages whose callback has returned
    without settling them. Threads: the consumer's thread calls `begin_callbacks` (with exactly-once
    delivery the dispatcher's thread does), the dispatcher's thread calls `messages_settled` and
    `nacks_answered`, the consumer's, the dispatcher's and the leaser's threads call `leases_lost`,
    the leaser's thread calls `waits_over`, and the shutdown thread calls `give_up_held` and
    `close`. Everything else runs on the workers, or on the event loop of an asynchronous callback.

    Guarantees:

    - A message that is settled before its turn does not run.
    - A message whose callback raises is nacked, unless it was settled.
    - The next message of a key begins after the callback of the previous message has ended, and, if
      the user chose so, after the previous message is settled.
    - If the previous message failed, the next message begins after the redelivery was handled.

    Attributes:
        errors: How many callbacks have raised.
        keeps_order: Whether the server has reported message ordering for the subscription.
    """

    def __init__(
        self,
        callback: Callable[[Any], Any],
        scheduler: Scheduler,
        hold: MessagesOnHold,
        *,
        listener: CallbackListener,
        clock: Clock,
        release_after_ack: bool = False,
    ) -> None:
        self._callback = callback
        self._scheduler = scheduler
        self._hold = hold
        self._listener = listener
        self._clock = clock
        self._release_after_ack = release_after_ack
        self.keeps_order = False
        # A dict used as a set. `pop` removes a message and reports success to one thread only.
        self._ended_unsettled: dict[Message, bool] = {}
        self._errors_lock = threading.Lock()
        self._reports = RepeatedErrors(_log, clock)
        self.errors = 0
        is_async = is_coroutine_function(callback)
        self._run_any = self._await_any if is_async else self._call_any
        self._run_in_order = self._await_in_order if is_async else self._call_in_order

    def start(self) -> None:
        """Start the additional threads. This class needs only the scheduler's threads."""

    def begin_callbacks(self, messages: list[Message], *, in_order: bool) -> None:
        """Run the callback for each message, now or when its key allows it."""
        self.keeps_order = in_order
        if in_order:
            self._act(self._hold.offer(messages, self._clock.monotonic()))
        else:
            self._submit(messages, in_order)

    def give_up_held(self) -> list[Message]:
        """Stop holding messages, and return the held messages."""
        actions = self._hold.give_up()
        held, actions.to_return = actions.to_return, []
        self._act(actions)
        return held

    def close(self) -> list[Message]:
        """Begin no more callbacks; return the gathered messages that the scheduler has not got."""
        return []

    @property
    def waiting(self) -> int:
        """Number of messages that are gathered here."""
        return 0

    def messages_settled(
        self, acked: Sequence[Message], nacked: Sequence[Message], dropped: Sequence[Message]
    ) -> None:
        """Handle messages that were settled, inside their callback or later."""
        if not self.keeps_order:
            return
        for message in itertools.chain(nacked, dropped):
            if message.ordering_key:
                self._failed(message)
        if self._ended_unsettled:
            for message in itertools.chain(acked, nacked, dropped):
                if self._ended_unsettled.pop(message, False):
                    self._end_turn(message)

    def nacks_answered(self, ack_ids: Sequence[str], comes_at: float) -> None:
        """Handle nacks that the server accepted; see `MessagesOnHold.nacks_accepted`."""
        self._act(self._hold.nacks_accepted(ack_ids, comes_at))

    def leases_lost(self, messages: Sequence[Message], comes_at: float | None) -> None:
        """Handle lost leases of settled messages; see `MessagesOnHold.lost`."""
        if self.keeps_order:
            self._act(self._hold.lost(messages, comes_at))
        for message in messages:
            # The key waits until the message is settled, which would now be too late.
            if self._ended_unsettled.pop(message, False):
                self._end_turn(message)

    def waits_over(self, now: float) -> float | None:
        """End the waits that are over at `now`, and return when the next wait is over."""
        self._act(self._hold.waits_over(now))
        return self._hold.next_due()

    def _act(self, actions: Actions) -> None:
        """Carry out the actions of the hold.

        Callbacks come last, because this thread may run them itself.
        """
        if actions.parked or actions.parked_bytes:
            self._listener.parked(actions.parked, actions.parked_bytes)
        if actions.forget:
            self._listener.forget(actions.forget)
        if actions.acknowledge:
            MessageBatch(actions.acknowledge).ack()
        if actions.to_return:
            self._listener.return_messages(actions.to_return)
        if actions.return_dropped:
            self._listener.return_dropped(actions.return_dropped)
        if actions.due is not None:
            self._listener.wait_began(actions.due)
        if actions.run:
            self._submit(actions.run, in_order=True)

    def _submit(self, messages: list[Message], in_order: bool) -> None:
        run = self._run_in_order if in_order else self._run_any
        self._scheduler.schedule_many(run, messages)

    # ---- one callback --------------------------------------------------------------------------

    def _call_any(self, message: Message) -> None:
        # `_may_begin`, without the cost of a call for each message.
        message.begun = True
        if message.settled is not None:
            return
        if self._clock.monotonic() >= message.batch.lease_ends:
            del message.begun
            lose(message)
            return
        try:
            result = self._callback(message)
            if result is not None:
                refuse_awaitable(result, self._callback)
        except BaseException as error:
            # This includes SystemExit: a callback cannot end the subscription, only its own
            # message.
            self._raised(message, error)

    async def _await_any(self, message: Message) -> None:
        if not self._may_begin(message):
            return
        try:
            refuse_awaitable(await self._callback(message), self._callback)
        except BaseException as error:
            # This includes cancellation: the task ends with its callback.
            self._raised(message, error)

    def _may_begin(self, message: Message) -> bool:
        """Return whether the callback may begin.

        It may not if the message was given up or returned while it waited for a worker, or if its
        lease is over, because the process was stopped for longer than the lease. Then the message
        is delivered again, and may be in another subscriber's callback now.
        """
        # Set before the check below: a thread that gives the message up first sets `settled`, and
        # then looks at `begun`.
        message.begun = True
        if message.settled is not None:
            return False
        if self._clock.monotonic() >= message.batch.lease_ends:
            del message.begun
            lose(message)
            return False
        return True

    def _call_in_order(self, message: Message) -> None:
        self._call_any(message)
        self._ended(message)

    async def _await_in_order(self, message: Message) -> None:
        await self._await_any(message)
        self._ended(message)

    def _raised(self, message: Message, error: BaseException) -> None:
        settled = message.settled
        outcome = "is nacked" if settled is None else _OUTCOMES[settled]
        text = f"callback raised for message {message.message_id}, which {outcome}"
        self._count_error(error, text)
        if settled is None:
            message.nack()

    def _count_error(self, error: BaseException, text: str) -> None:
        with self._errors_lock:
            self.errors += 1
        self._reports.report(error, text)

    def report_errors(self) -> None:
        """Log how many errors were counted and not logged, at the end of the subscription."""
        self._reports.report_rest()

    # ---- the turns of a key --------------------------------------------------------------------

    def _ended(self, message: Message) -> None:
        """Handle the end of a callback of a subscription that keeps order."""
        if not message.ordering_key:
            return
        if self._release_after_ack and message.settled is None:
            # Insert first, then check again. If the message is settled in between, either the
            # dispatcher's thread finds it in the dict or this check sees it. The thread that
            # removes it from the dict ends the turn.
            self._ended_unsettled[message] = True
            if message.settled is None or not self._ended_unsettled.pop(message, False):
                return
        if message.settled is not _ACK and message.settled in _FAILED:
            self._failed(message)
        self._end_turn(message)

    def _failed(
        self,
        message: Message,
        handled: Sequence[Message] = (),
        unhandled: Sequence[Message] = (),
    ) -> None:
        self._act(self._hold.failed(message, handled=handled, unhandled=unhandled))

    def _end_turn(self, message: Message, shared: Sequence[Message] = ()) -> None:
        """End the turn of a key, and run the messages whose turn begins.

        Args:
            message: The message whose turn has ended.
            shared: Other messages that shared its turn.
        """
        following, actions = self._hold.ended(message, shared)
        try:
            if following:
                self._submit(following, in_order=True)
            if actions is not None:
                self._act(actions)
        except Exception as error:
            # The subscription cannot continue without a scheduler. The shutdown returns the
            # message.
            self._listener.stop(error)


class BatchRunner(CallbackRunner):
    """A CallbackRunner whose callback takes lists.

    A list may contain several messages of one key, in order, if no other list contains messages of
    that key. When a list is about to be handled, the held messages of its keys join it. The turn of
    a key ends with the list.

    If the callback raises, the first unsettled message of each key is nacked, and the later
    messages of the key are held again. A redelivered message does not share its list with other
    messages of its key, so a poison message cannot make them fail, too.
    """

    def __init__(
        self,
        callback: Callable[[Any], Any],
        scheduler: Scheduler,
        hold: MessagesOnHold,
        *,
        listener: CallbackListener,
        clock: Clock,
        max_messages: int,
        max_latency: float,
        pack: Callable[[list[Any]], Any],
    ) -> None:
        super().__init__(callback, scheduler, hold, listener=listener, clock=clock)
        self._pack = pack
        self.max_messages: int = max_messages
        is_async = is_coroutine_function(callback)
        self._run_list = self._await_list if is_async else self._call_list
        self._batcher = Batcher(
            clock, max_messages=max_messages, max_latency=max_latency, ready=self._ready
        )

    def start(self) -> None:
        """Start the batcher's thread, which hands over incomplete lists after `max_latency`."""
        self._batcher.start()

    def close(self) -> list[Message]:
        """Stop the batcher, and return the messages that never reached the scheduler."""
        return messages_of(self._batcher.close())

    @property
    def waiting(self) -> int:
        """Number of messages that wait in the batcher for the rest of their list."""
        return len(self._batcher)

    def begin_portions(self, portions: Sequence[Portion], *, in_order: bool) -> None:
        """Run the callback for portions, whose messages have no key. They may share their list."""
        self.keeps_order = in_order
        self._batcher.add(portions)

    def _submit(self, messages: list[Message], in_order: bool) -> None:
        # A list that held messages of its keys will fill need not wait for others.
        behind = sum(self._hold.waiting_behind(m) for m in messages) if in_order else 0
        rest = len(messages) % self.max_messages
        is_filled = behind > 0 and rest + behind >= self.max_messages
        self._batcher.add(messages, is_urgent=is_filled)

    def _ready(self, messages: list[Unit]) -> None:
        try:
            self._scheduler.schedule(self._run_list, messages)
        except Exception as error:
            self._listener.stop(error)

    def _call_list(self, units: list[Unit]) -> None:
        batch = self._fill(units)
        unhandled: list[Message] = []
        if batch:
            try:
                refuse_awaitable(self._callback(self._pack(batch)), self._callback)
            except BaseException as error:
                unhandled = self._list_raised(messages_of(batch), error)
        self._list_ended(units, batch, unhandled)

    async def _await_list(self, units: list[Unit]) -> None:
        batch = self._fill(units)
        unhandled: list[Message] = []
        if batch:
            try:
                refuse_awaitable(await self._callback(self._pack(batch)), self._callback)
            except BaseException as error:
                unhandled = self._list_raised(messages_of(batch), error)
        self._list_ended(units, batch, unhandled)

    def _fill(self, units: list[Unit]) -> list[Unit]:
        batch: list[Unit] = []
        for unit in units:
            if isinstance(unit, Message):
                if self._may_begin(unit):
                    batch.append(unit)
            elif self._clock.monotonic() < unit.batch.lease_ends and unit.begin():
                batch.append(unit)
            else:
                # Some were given up or returned, or all have lost their lease.
                batch += [each for each in unit.messages() if self._may_begin(each)]
        if self.keeps_order:
            room = self.max_messages - size_of(batch)
            for message in [unit for unit in batch if isinstance(unit, Message)]:
                if room > 0 and message.ordering_key:
                    behind = self._hold.take_behind(message, room)
                    joining = [each for each in behind if self._may_begin(each)]
                    batch += joining
                    room -= len(joining)
        return batch

    def _list_raised(self, batch: list[Message], error: BaseException) -> list[Message]:
        """Nack the unsettled messages; return those behind a failed message of their key."""
        text = f"callback raised for {len(batch)} messages; unsettled ones are nacked"
        self._count_error(error, text)
        failed_keys: set[str] = set()
        unhandled: list[Message] = []
        for message in batch:
            if message.settled is not None and message.settled not in _FAILED:
                continue
            key = message.ordering_key if self.keeps_order else ""
            if message.settled is None:
                if key in failed_keys:
                    unhandled.append(message)
                else:
                    message.nack()
            if key:
                failed_keys.add(key)
        return unhandled

    def _list_ended(self, units: list[Unit], batch: list[Unit], unhandled: list[Message]) -> None:
        if not self.keeps_order:
            return
        by_key: dict[str, list[Message]] = {}
        for message in dict.fromkeys((*units, *batch)):
            # The messages of portions have no key.
            if isinstance(message, Message) and message.ordering_key:
                by_key.setdefault(message.ordering_key, []).append(message)
        again = set(unhandled)
        for of_key in by_key.values():
            failed = next((m for m in of_key if m.settled in _FAILED), None)
            if failed is not None:
                behind = of_key[of_key.index(failed) + 1 :]
                clear_begun(again.intersection(behind))
                self._failed(
                    failed,
                    handled=[m for m in behind if m.settled is Disposition.ACK],
                    unhandled=[m for m in behind if m in again],
                )
            # The messages of a key shared one turn.
            self._end_turn(of_key[-1], of_key[:-1])
