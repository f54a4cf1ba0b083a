"""Shell of a follower: runs the state machine, performs its actions, and calls the handler."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import wait
from contextvars import ContextVar
from datetime import datetime, timezone
from functools import partial
from typing import Any

from pullstream.runtime.callback_kinds import refuse_awaitable
from pullstream.runtime.outage_reporter import OutageReporter
from pullstream.runtime.process import CHECK_EVERY, Latch, WakeUp
from pullstream.runtime.repeated_errors import RepeatedErrors
from pullstream_protocol.call_lock import CallLock
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock
from pullstream_protocol.errors import NotFound, RpcError

from .checkpointer import Checkpointer, is_temporary
from .events import Checkpoint, Closed, CloseReason, Event, FellBehindCause, Gap
from .future import Follower, FollowStatistics
from .machine import (
    Action,
    Close,
    Deliver,
    FollowMachine,
    FollowState,
    LeaveStream,
    OpenStream,
    Read,
    Report,
    Wait,
    read_retries,
)
from .records import Record, RecordRange
from .settings import FollowSettings
from .source import LiveStream, Source
from .stores import CheckpointError, CheckpointStore

_log = logging.getLogger("pullstream.follow")

Handler = Callable[[Record], Any]
OnEvent = Callable[[Event], Any]

# Set inside a handler, and in the code that it awaits: the CoroutineHandler that runs it.
_running: ContextVar[CoroutineHandler | None] = ContextVar("pullstream_handler", default=None)


class CoroutineHandler:
    """Runs an `async def` handler on an event loop, one record at a time.

    The follower's thread waits for each record. If the loop is closed before the handler has ended,
    this counts as an error of the handler.
    """

    def __init__(
        self,
        handler: Callable[[Record], Coroutine[Any, Any, Any]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._handler = handler
        self._loop = loop

    def __call__(self, record: Record) -> None:
        """Run the handler for a record, wait for its end, and raise its error."""
        coroutine = self._handle(record)
        try:
            running = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
            while not wait([running], CHECK_EVERY).done:
                # A loop that is closed drops callbacks that have not started, without an error.
                if self._loop.is_closed():
                    raise RuntimeError("the event loop was closed before the handler had ended")
        except RuntimeError:
            # The coroutine will not be awaited.
            coroutine.close()
            raise
        running.result()

    def runs_here(self) -> bool:
        """Return whether the handler cannot end while the caller blocks or is awaited."""
        if _running.get() is self:
            return True
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    async def _handle(self, record: Record) -> None:
        _running.set(self)
        refuse_awaitable(await self._handler(record), self._handler)


class FollowRunner:
    """One running follower: the state machine, and the code that performs its actions.

    Owns the machine, which is protected by a lock that is held only while the machine runs; the
    checkpointer, which belongs to the follower's thread; and the current stream.

    Threads: `pullstream-follow` asks the machine for the next action, reads, runs the handler and
    `on_event`, and saves the position. The thread of a stream passes received records on to the
    machine. Any thread may call `stop` and read the state.

    Guarantees: the handler receives records in the order of the log, one at a time. An event is
    reported between the records where it belongs. The position moves past a record when the handler
    has returned. `Closed` is reported once, as the last event.

    Args:
        source: Reads the topic.
        store: Saves the position.
        handler: Called with each record.
        on_event: Called with each event, if not None.
        start: The start position if the store has none. None is the end of the log.
        settings: The user's settings.
        clock: The source of time.
    """

    def __init__(
        self,
        source: Source,
        store: CheckpointStore,
        handler: Handler,
        on_event: OnEvent | None,
        start: Checkpoint | None,
        settings: FollowSettings,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._source = source
        self._handler = handler
        self._on_event = on_event
        self._settings = settings
        self._clock = clock
        self._checkpointer = Checkpointer(
            store, settings.checkpoint_every, settings.checkpoint_seconds, clock
        )
        self._lock = CallLock()
        self._machine = FollowMachine(start, settings.rules)
        # The position until the first record is handled.
        self._start = start
        self._stream: LiveStream | None = None
        self._stopping = Latch()
        # Set when something has happened that the follower's thread may be waiting for.
        self._changed = WakeUp()
        self._outage = OutageReporter(_log)
        self._errors = RepeatedErrors(_log)
        self._handled = self._gaps = 0
        self.future: Follower = Follower(self, f"the follower of {settings.topic}")
        # A daemon thread, because a program may exit without closing its followers.
        self._thread = threading.Thread(target=self._run, name="pullstream-follow", daemon=True)

    def start(self) -> None:
        """Start the follower's thread."""
        self._thread.start()

    def stop(self) -> None:
        """End when the handler has finished its current record. Idempotent, never waits."""
        self._stop(CloseReason.STOPPED)

    def runs_here(self) -> bool:
        """Return whether the caller is the follower's thread, or runs inside its handler."""
        handler = self._handler
        in_handler = isinstance(handler, CoroutineHandler) and handler.runs_here()
        return in_handler or threading.current_thread() is self._thread

    def join(self) -> None:
        """Wait for the end of the follower's thread."""
        self._thread.join()

    @property
    def state(self) -> FollowState:
        """The present state, read without the lock."""
        return self._machine.state

    @property
    def position(self) -> Checkpoint:
        """The position after the last handled record; the start position before that."""
        return self._checkpointer.position or self._start or Checkpoint(0)

    def statistics(self) -> FollowStatistics:
        """Return a snapshot. Its values are read one by one while the follower runs."""
        machine, position = self._machine, self.position
        return FollowStatistics(
            state=machine.state,
            is_caught_up=machine.is_caught_up,
            position=position,
            kept=self._checkpointer.kept,
            head_seq=machine.head_seq,
            lag=max(machine.head_seq - position.seq, 0),
            handled=self._handled,
            gaps=self._gaps,
            fallbacks=machine.fallbacks,
            buffered=machine.buffered,
        )

    # ---- events of a stream (thread of the stream) ---------------------------------------------

    def opened(self, stream: int, after_seq: int, epoch: int) -> None:
        """Pass the event to the machine, and wake the follower's thread."""
        with self._lock:
            self._machine.opened(stream, after_seq, epoch, self._clock.monotonic())
        self._changed.set()

    def arrived(self, stream: int, record_range: RecordRange, head_seq: int) -> None:
        """Pass the records to the machine, and wake the follower's thread."""
        with self._lock:
            self._machine.arrived(stream, record_range, head_seq, self._clock.monotonic())
        self._changed.set()

    def heard(self, stream: int) -> None:
        """Record in the machine that the stream is alive; the follower's thread sleeps on."""
        with self._lock:
            self._machine.heard(stream, self._clock.monotonic())

    def lost(self, stream: int, cause: FellBehindCause) -> None:
        """Pass the event to the machine, and wake the follower's thread."""
        with self._lock:
            self._machine.lost(stream, cause, self._clock.monotonic())
        self._changed.set()

    # ---- the follower's thread -----------------------------------------------------------------

    def _run(self) -> None:
        self._clock.add_waker(self._changed.set)
        try:
            close = self._follow()
        except BaseException as error:
            # A defect of the state machine. The future must still complete with the error.
            close = Close(CloseReason.ERROR, error)
        self._clock.remove_waker(self._changed.set)
        self._end(close)

    def _follow(self) -> Close:
        self._attempt(self._prepare)
        while not isinstance(action := self._next(), Close):
            self._attempt(partial(self._perform, action))
        return action

    def _attempt(self, step: Callable[[], None]) -> None:
        """Run a step; any error ends the follower and is reported."""
        try:
            step()
        except BaseException as error:
            self._stop(_reason_of(error), error)

    def _prepare(self) -> None:
        """Create the topic if requested, and load the saved position. Retries failed calls."""
        settings = self._settings
        retries = read_retries(settings.rules.give_up_after)
        while not self._stopping.is_set:
            try:
                if settings.create:
                    self._source.create_topic()
                kept = self._checkpointer.open(settings.topic)
            except RpcError as error:
                if not is_temporary(error):
                    raise
                self._outage.failed(self._clock.monotonic(), error)
                due = retries.failed(self._clock.monotonic())
                if due is None:
                    self._stop(CloseReason.SERVER_GONE, error)
                    return
                while self._clock.monotonic() < due and not self._stopping.is_set:
                    self._wait(due)
                    self._changed.clear()
            else:
                self._outage.over()
                self._machine.cursor = self._start = kept or self._start
                return

    def _next(self) -> Action:
        # Clear before asking the machine: an event that comes after this ends the next wait.
        self._changed.clear()
        with self._lock:
            return self._machine.next(self._clock.monotonic())

    def _perform(self, action: Action) -> None:
        match action:
            case Read():
                self._read(action)
            case Deliver():
                self._deliver(action)
            case Report():
                self._report(action.event(self._now()))
            case OpenStream(number):
                self._stream = LiveStream(number, self._settings.topic, self._source.stream, self)
            case LeaveStream():
                self._leave_stream()
                self._source.check()
            case Wait(until):
                self._wait(until)

    def _read(self, action: Read) -> None:
        if action.wait:
            # A good moment to save: the follower is idle during the long poll.
            self._checkpointer.save()
        try:
            result = self._source.read(action.after, action.wait)
        except RpcError as error:
            if self._stopping.is_set:
                return
            if not is_temporary(error):
                raise
            self._outage.failed(self._clock.monotonic(), error)
            with self._lock:
                self._machine.failed(error, self._clock.monotonic())
        else:
            self._outage.over()
            with self._lock:
                self._machine.answered(result, self._clock.monotonic())

    def _deliver(self, action: Deliver) -> None:
        to, checkpointer = action.to, self._checkpointer
        handler, stopping = self._handler, self._stopping
        for record in action.records:
            if stopping.is_set:
                return
            try:
                refuse_awaitable(handler(record), handler)
            except BaseException as error:
                # Continuing would lose the record, or handle the same record again and again.
                _log.exception(
                    "the handler raised an error at record %d; the follower ends", record.seq
                )
                self._stop(CloseReason.HANDLER_ERROR, error)
                return
            self._handled += 1
            checkpointer.passed(record.seq, to.epoch)
        if to.seq <= self._machine.head_seq:
            # The user's start may be beyond the end of the log. The position moves only when the
            # log has reached it.
            checkpointer.moved(to)

    def _wait(self, until: float) -> None:
        due = self._checkpointer.due
        self._changed.wait(self._clock.timeout(until if due is None else min(until, due)))
        if due is not None and self._clock.monotonic() >= due:
            self._checkpointer.save()

    def _report(self, event: Event) -> None:
        self._gaps += isinstance(event, Gap)
        if self._on_event is not None:
            try:
                refuse_awaitable(self._on_event(event), self._on_event)
            except BaseException as error:
                # This includes SystemExit: only the handler can end the follower.
                text = f"on_event raised an error for {event!r}; the follower continues"
                self._errors.report(error, text)
        elif isinstance(event, Gap):
            # Without `on_event`, the log is the only place to report the loss.
            _log.warning("records were lost: %s", event)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now(), timezone.utc)

    def _leave_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.leave()

    def _stop(self, reason: CloseReason, error: BaseException | None = None) -> None:
        with self._lock.once:
            self._machine.stop(reason, error)
        self._stopping.set()
        self._source.cancel()
        self._changed.set()

    def _end(self, close: Close) -> None:
        if (stream := self._stream) is not None:
            stream.leave()
            stream.join()
        reason, error = close.reason, close.error
        for step in (self._checkpointer.save, self._checkpointer.close):
            try:
                step()
            except BaseException as failure:
                _log.warning("the last position may not be saved: %s", failure)
                if error is None:
                    reason, error = CloseReason.CHECKPOINT_ERROR, failure
        try:
            self._report(Closed(reason, error, self.position, self._now()))
        finally:
            if error is None:
                self.future.set_result(True)
            else:
                self.future.set_exception(error)


def _reason_of(error: BaseException) -> CloseReason:
    if isinstance(error, CheckpointError):
        return CloseReason.CHECKPOINT_ERROR
    # Apart from cursors, only the topic is requested by name, so NotFound means the topic.
    return CloseReason.TOPIC_DELETED if isinstance(error, NotFound) else CloseReason.ERROR
