"""The threads around the machine of a follower."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial
from typing import Any

from protocol.clock import SYSTEM_CLOCK, Clock
from protocol.errors import NotFound, RpcError
from subscriber.outage import Outage

from .actions import Action, Close, Deliver, LeaveStream, OpenStream, Read, Tell, Wait
from .coroutine_handler import CoroutineHandler
from .events import Checkpoint, Closed, CloseReason, Event, FallCause, Gap
from .follower import Follower, FollowStatistics
from .keeper import Keeper, is_passing
from .machine import FollowMachine
from .pace import Attempts
from .record import Record
from .runs import Run
from .settings import Settings
from .source import LiveStream, Source
from .states import FollowState
from .stores import CheckpointError, CheckpointStore

_log = logging.getLogger("pullstream.follow")

Handler = Callable[[Record], Any]
OnEvent = Callable[[Event], Any]


class Follow:
    """One running follower: the machine, and what carries out its actions.

    Owns: the machine, behind a lock that is held for no longer than the machine takes; the keeper,
    which belongs to the follower's thread; the present stream.

    Which thread does what: `pullstream-follow` asks the machine what to do, reads, runs the handler
    and `on_event`, and keeps the position. The thread of a stream passes on what that brings. Any
    thread may `stop` it, and look at it.

    Guarantees: the handler gets records in the order of the log and one at a time; an event is told
    between the records where it belongs; the position passes a record when the handler has
    returned; `Closed` is told once, last of all.

    Args:
        start: where to begin when nothing is kept; None: at the end.
    """

    def __init__(
        self,
        source: Source,
        store: CheckpointStore,
        handler: Handler,
        on_event: OnEvent | None,
        start: Checkpoint | None,
        settings: Settings,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._source = source
        self._handler = handler
        self._on_event = on_event
        self._settings = settings
        self._clock = clock
        self._keeper = Keeper(store, settings.checkpoint_every, settings.checkpoint_seconds, clock)
        self._lock = threading.Lock()
        self._machine = FollowMachine(start, settings.rules)
        # The position until a record was handled.
        self._start = start
        self._stream: LiveStream | None = None
        self._stopping = threading.Event()
        # Something has happened that the follower's thread may wait for.
        self._news = threading.Event()
        self._outage = Outage(_log)
        self._handled = self._gaps = 0
        self.future: Follower = Follower(self)
        # A daemon: a program may end without having closed what it follows.
        self._thread = threading.Thread(target=self._run, name="pullstream-follow", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Let the handler finish with the record it has, and end. Idempotent, never waits."""
        self._stop(CloseReason.STOPPED)

    def runs_here(self) -> bool:
        handler = self._handler
        in_handler = isinstance(handler, CoroutineHandler) and handler.runs_here()
        return in_handler or threading.current_thread() is self._thread

    def join(self) -> None:
        self._thread.join()

    @property
    def state(self) -> FollowState:
        return self._machine.state

    @property
    def position(self) -> Checkpoint:
        return self._keeper.position or self._start or Checkpoint(0)

    def statistics(self) -> FollowStatistics:
        """A snapshot. Its parts are read one after the other, while all goes on."""
        machine, position = self._machine, self.position
        return FollowStatistics(
            state=machine.state,
            is_caught_up=machine.is_caught_up,
            position=position,
            kept=self._keeper.kept,
            head_seq=machine.head_seq,
            lag=max(machine.head_seq - position.seq, 0),
            handled=self._handled,
            gaps=self._gaps,
            falls=machine.falls,
            buffered=machine.buffered,
        )

    # ---- what a stream brings (its thread) -----------------------------------------------------

    def opened(self, stream: int, after_seq: int, epoch: int) -> None:
        with self._lock:
            self._machine.opened(stream, after_seq, epoch, self._clock.monotonic())
        self._news.set()

    def arrived(self, stream: int, run: Run, head_seq: int) -> None:
        with self._lock:
            self._machine.arrived(stream, run, head_seq, self._clock.monotonic())
        self._news.set()

    def heard(self, stream: int) -> None:
        with self._lock:
            self._machine.heard(stream, self._clock.monotonic())

    def lost(self, stream: int, cause: FallCause) -> None:
        with self._lock:
            self._machine.lost(stream, cause, self._clock.monotonic())
        self._news.set()

    # ---- the follower's thread -----------------------------------------------------------------

    def _run(self) -> None:
        self._clock.add_waker(self._news.set)
        try:
            close = self._follow()
        except BaseException as error:
            # A fault of the machine's. Whoever waits for the end must learn of it all the same.
            close = Close(CloseReason.ERROR, error)
        self._clock.remove_waker(self._news.set)
        self._end(close)

    def _follow(self) -> Close:
        self._attempt(self._prepare)
        while not isinstance(action := self._next(), Close):
            self._attempt(partial(self._perform, action))
        return action

    def _attempt(self, step: Callable[[], None]) -> None:
        """Whatever goes wrong ends the follower, and is told."""
        try:
            step()
        except BaseException as error:
            self._stop(_reason_of(error), error)

    def _prepare(self) -> None:
        """Get the kept position, and make the topic: until the server has answered."""
        settings = self._settings
        attempts = Attempts(settings.rules.give_up_after)
        while not self._stopping.is_set():
            try:
                if settings.create:
                    self._source.create_topic()
                kept = self._keeper.open(settings.topic)
            except RpcError as error:
                if not is_passing(error):
                    raise
                self._outage.failed(self._clock.monotonic(), error)
                if attempts.failed(self._clock.monotonic()):
                    self._stop(CloseReason.SERVER_GONE, error)
                while self._clock.monotonic() < attempts.due and not self._stopping.is_set():
                    self._wait(attempts.due)
                    self._news.clear()
            else:
                self._outage.over()
                self._machine.cursor = self._start = kept or self._start
                return

    def _next(self) -> Action:
        # First this, so that what comes from now on ends a wait.
        self._news.clear()
        with self._lock:
            return self._machine.next(self._clock.monotonic())

    def _perform(self, action: Action) -> None:
        match action:
            case Read():
                self._read(action)
            case Deliver():
                self._deliver(action)
            case Tell():
                self._tell(action.event(self._now()))
            case OpenStream(number):
                self._stream = LiveStream(number, self._settings.topic, self._source.stream, self)
            case LeaveStream():
                self._leave_stream()
            case Wait(until):
                self._wait(until)

    def _read(self, action: Read) -> None:
        if action.wait:
            # Nothing else will be done meanwhile.
            self._keeper.save()
        try:
            answer = self._source.read(action.after, action.wait)
        except RpcError as error:
            if self._stopping.is_set():
                return
            if not is_passing(error):
                raise
            self._outage.failed(self._clock.monotonic(), error)
            with self._lock:
                self._machine.failed(error, self._clock.monotonic())
        else:
            self._outage.over()
            with self._lock:
                self._machine.answered(answer, self._clock.monotonic())

    def _deliver(self, action: Deliver) -> None:
        to, keeper = action.to, self._keeper
        handler, is_stopping = self._handler, self._stopping.is_set
        for record in action.records:
            if is_stopping():
                return
            try:
                handler(record)
            except BaseException as error:
                # To go on would be to lose the record, or to handle it for ever.
                _log.exception("the handler raised at %d, which ends the follower", record.seq)
                self._stop(CloseReason.HANDLER_ERROR, error)
                return
            self._handled += 1
            keeper.passed(record.seq, to.epoch)
        if to.seq <= self._machine.head_seq:
            # Not before the log has come to where the user began.
            keeper.moved(to)

    def _wait(self, until: float) -> None:
        due = self._keeper.due
        self._news.wait(self._clock.timeout(until if due is None else min(until, due)))
        if due is not None and self._clock.monotonic() >= due:
            self._keeper.save()

    def _tell(self, event: Event) -> None:
        self._gaps += isinstance(event, Gap)
        if self._on_event is not None:
            try:
                self._on_event(event)
            except Exception:
                _log.exception("on_event raised at %r", event)
        elif isinstance(event, Gap):
            # Nobody else is there to be told, and no loss is silent.
            _log.warning("records were lost: %s", event)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now(), timezone.utc)

    def _leave_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.leave()

    def _stop(self, reason: CloseReason, error: BaseException | None = None) -> None:
        with self._lock:
            self._machine.stop(reason, error)
        self._stopping.set()
        self._source.cut()
        self._news.set()

    def _end(self, close: Close) -> None:
        if (stream := self._stream) is not None:
            stream.leave()
            stream.join()
        reason, error = close.reason, close.error
        for step in (self._keeper.save, self._keeper.close):
            try:
                step()
            except BaseException as failure:
                _log.warning("the last position may not be kept: %s", failure)
                if error is None:
                    reason, error = CloseReason.CHECKPOINT_ERROR, failure
        try:
            self._tell(Closed(reason, error, self.position, self._now()))
        finally:
            if error is None:
                self.future.set_result(True)
            else:
                self.future.set_exception(error)


def _reason_of(error: BaseException) -> CloseReason:
    if isinstance(error, CheckpointError):
        return CloseReason.CHECKPOINT_ERROR
    # The only thing that is asked for by its name, but for a cursor, is the topic.
    return CloseReason.TOPIC_DELETED if isinstance(error, NotFound) else CloseReason.ERROR
