"""IngestSession: a subscription as numbered batches that can be read again, free of Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from protocol.clock import SYSTEM_CLOCK, Clock
from subscriber.client import SubscriberClient
from subscriber.exceptions import SubscriberClosed

from .ahead import Ahead
from .ahead import WorkAhead as WorkAhead
from .disk import Disk
from .errors import SpoolError
from .feed import Feed
from .intake import Intake
from .limit import Limit as Limit
from .recovery import Recovery
from .segment import SegmentFile
from .segments import Cut, Segments
from .settings import IngestSettings

if TYPE_CHECKING:
    from typing_extensions import Self

_log = logging.getLogger("pullstream.spark")

# An "available now" run is to end: it does not try for ever to reach the server. And how long it
# waits at its end for the server to answer its acknowledgements. In seconds.
_DRAIN_GIVE_UP = 60.0
_DRAIN_FLUSH = 10.0

# So many segments later it is tried again to write one ahead, after the spool had no room for two.
# A vain attempt costs as much as another batch.
_PAUSE_WITHOUT_ROOM = 20

_REPORTED = (
    *("seq", "buffered", "leased"),
    *("suppressedDuplicates", "unackedCommitted", "spoolBytes"),
)


class IngestSession:
    """Batches of a subscription, kept on disk from the moment when they are planned to the proof
    that they are committed; acknowledged then, and not before.

    A batch is a segment of the spool and has a number. The offset n stands for the segments 1 to n.
    The caller is an engine that plans a range of offsets, writes it down, processes it, and comes
    back: `latest(n)` and `commit(n)` are its proof that everything up to n is committed. After a
    crash it asks for the `segments` of the range that was planned and not committed, or, if there
    is none, for the `latest`: whichever of the two comes first tells what to keep. What is beyond
    was never planned, or by another engine, and is given back.

    One thread at a time calls the methods. The first call that needs them takes the spool's lock,
    opens the subscription and begins its threads; `close` ends all of that. With `work_ahead`, what
    is committed is acknowledged, and the next segment written, while the engine is at work on the
    batch that it was given last: then `latest` need not wait for either. A segment that was written
    ahead is planned when it is asked for; until then it is as if it were not there, also for who
    finds it after a crash.

    Guarantees: a message is acknowledged only when its segment is committed, by the engine that
    says so, or when its id is in the done index; a segment always has the same bytes; what was
    received and not acknowledged comes again, here or elsewhere, within `lease_seconds` of the end
    of the process.

    Args:
        work_ahead: see WorkAhead.
        clock, disk, connect: what to take for time, how files are written, and a maker of the
            client. For tests.
    """

    def __init__(
        self,
        settings: IngestSettings,
        *,
        work_ahead: WorkAhead = WorkAhead.OFF,
        clock: Clock = SYSTEM_CLOCK,
        disk: Disk | None = None,
        connect: Callable[[], SubscriberClient] | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._connect = connect or (lambda: SubscriberClient(endpoint=settings.endpoint))
        self._segments = Segments(settings, disk or Disk(), clock)
        self._intake: Intake | None = None
        self._feed: Feed | None = None
        self._ahead = Ahead(work_ahead)
        # Written ahead, and not asked for.
        self._next: Cut | None = None
        # From the segment with this number on the next one is written ahead.
        self._ahead_from = 0
        self._closed = False
        # The newest offset that was seen, and what is known to be committed.
        self._seq = 0
        self._committed = 0
        # Of an "available now" run: when it began, and whether it has seen the end.
        self._until: float | None = None
        self._drained = False

    # ---- what the engine calls -----------------------------------------------------------------

    def prepare_available_now(self) -> None:
        """Let `latest` come to an end: when nothing has come for the settings' `drain_wait`, or
        when all that comes was published after this call."""
        self._until = self._clock.now()

    def latest(self, start: int, limit: Limit | None = None) -> int:
        """Plan the next batch: the offset at its end, or `start` if there is none now.

        `start` is the offset up to which everything is committed.

        Raises:
            SpoolError: the spool cannot be used, is not that of the offset, or cannot take the
                batch.
            RpcError: the subscription has ended for good: it does not exist, say.
            SubscriberClosed: this session is closed.
        """
        intake, feed = self._begin(start, start)
        within = (limit or Limit()).within(self._settings)
        self._end_ahead(intake)
        ready = self._next
        if ready is not None and (self._seq, ready.within) == (start, within):
            self._next = None
            return self._plan(ready, intake)
        self._take_back(intake)
        with intake.precedence():
            self._segments.settle(intake, self._committed)
        if self._seq > start:
            # Planned before, and not taken up.
            return self._seq
        if not self._drained:
            feed.check()
            if self._wait(intake, *within):
                feed.check()
                with intake.precedence():
                    cut = self._segments.cut(intake, start, within, self._until)
                return start if cut is None else self._plan(cut, intake)
            feed.check()
            self._drained = self._until is not None
        if self._drained:
            # Nothing more is to come, and this may be the last call: let the server answer now.
            intake.let_go()
            feed.stop(_DRAIN_FLUSH)
        return start

    def segments(self, start: int, end: int) -> list[SegmentFile]:
        """The segments after `start`, up to and with `end`, in order.

        Raises:
            MissingSegment: one is lost (unless the settings allow that).
            SpoolError, SubscriberClosed: as `latest`.
        """
        if end <= start:
            return []
        self._begin(start, end)
        self.commit(start)
        return self._segments.agreement.find(start, end)

    def commit(self, end: int) -> None:
        """Everything up to `end` is committed: let it be acknowledged (`Segments.settle`).

        Idempotent; never raises. What cannot be noted as done is tried again by the next call.
        """
        is_news, self._committed = end > self._committed, max(self._committed, end)
        if self._intake is None or self._closed:
            return
        if is_news or not self._ahead.is_under_way:
            self._end_ahead(self._intake)
            self._segments.settle(self._intake, self._committed)

    @property
    def is_caught_up(self) -> bool:
        """Whether the last `latest` ended because nothing more came, and not at a limit."""
        intake, wait = self._intake, self._settings.drain_wait
        return self._drained or (intake is not None and intake.is_quiet(wait))

    def report(self) -> dict[str, int]:
        """How it stands, in numbers; before the first call there is nothing."""
        report = dict.fromkeys(_REPORTED, 0)
        report["seq"] = self._seq
        if self._intake is not None and self._feed is not None:
            report["unackedCommitted"] = self._feed.unanswered
            report["spoolBytes"] = self._segments.spool.size
            with self._intake.ledger() as ledger:
                report["buffered"] = ledger.buffered
                report["leased"] = ledger.buffered + ledger.spooled
                report["suppressedDuplicates"] = ledger.suppressed
                report["unackedCommitted"] += ledger.spooled_up_to(self._committed)
        return report

    def close(self, timeout: float = 3.0) -> None:
        """End it: acknowledgements are sent, the buffer is given back, the spool is let go.

        What is planned and not committed stays in the spool, and its leases end by themselves.
        Idempotent. It takes `timeout` seconds at most, or a little more.
        """
        self._closed = True
        try:
            if self._intake is not None and self._feed is not None:
                self._end_ahead(self._intake)
                self._take_back(self._intake)
                self._intake.let_go()
                self._feed.close(timeout)
        finally:
            if self._intake is not None:
                self._intake.close()
            self._segments.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- beginning and end ---------------------------------------------------------------------

    def _begin(self, committed: int, planned: int) -> tuple[Intake, Feed]:
        """With the first call, take up what an earlier process has left, and begin to receive.

        Up to `committed` everything is committed. Up to `planned` it may be asked for again. What
        is beyond was never planned, and is given back.
        """
        if self._closed:
            raise SubscriberClosed("this session is closed; make a new one")
        if self._intake is None:
            self._segments.open()
            self._intake = Intake(self._segments.done, self._clock, self._segments.rows)
        if self._feed is None or planned > self._seq:
            self._segments.agreement.check(committed, planned)
        self._seq = max(self._seq, planned)
        self._committed = max(self._committed, committed)
        if self._feed is None:
            if planned > committed:
                # First, as it may raise.
                self._segments.agreement.find(committed, planned)
            return self._intake, self._receive(self._intake, planned)
        return self._intake, self._feed

    def _receive(self, intake: Intake, planned: int) -> Feed:
        recovery = Recovery(self._segments.spool, intake, planned)
        give_up_after = None if self._until is None else _DRAIN_GIVE_UP
        # Kept at once: should the process be told to end right now, it is to be closed.
        self._feed = feed = Feed(
            self._connect(), self._settings, intake, give_up_after=give_up_after
        )
        recovery.adopt(feed)
        return feed

    # ---- batches -------------------------------------------------------------------------------

    def _wait(self, intake: Intake, max_messages: int, max_bytes: int) -> bool:
        settings, drains = self._settings, self._until is not None
        return intake.wait(
            max_messages,
            max_bytes,
            linger=settings.linger,
            idle=settings.drain_wait if drains else settings.idle_wait,
            drain=drains,
        )

    def _plan(self, cut: Cut, intake: Intake) -> int:
        """The engine gets this segment, and is busy with it for some time."""
        self._seq, self._drained = cut.seq, cut.is_last
        if not self._drained:
            self._ahead.start(lambda: self._go_ahead(intake, cut))
        return cut.seq

    # ---- ahead of the engine (where `work_ahead` says) -----------------------------------------

    def _go_ahead(self, intake: Intake, last: Cut) -> None:
        """While the engine works on `last`: settle what it has committed, write the next."""
        self._segments.settle(intake, self._committed)
        if last.seq >= self._ahead_from and intake.wait_until_full(
            *last.within, self._ahead.is_over
        ):
            try:
                self._next = self._segments.cut(intake, last.seq, last.within, self._until)
            except SpoolError as error:
                # Not to be told: when it is asked for, the one before may be gone.
                _log.debug("nothing is written ahead of segment %d: %s", last.seq, error)
                self._ahead_from = last.seq + _PAUSE_WITHOUT_ROOM

    def _end_ahead(self, intake: Intake) -> None:
        """From here on the caller's thread is alone with the segments."""
        if self._ahead.is_under_way:
            with intake.precedence():
                self._ahead.end(intake.look_again)

    def _take_back(self, intake: Intake) -> None:
        """What was written ahead, and is not what was asked for, is in the buffer again."""
        cut, self._next = self._next, None
        if cut is not None:
            self._segments.put_back(intake, cut.seq)
