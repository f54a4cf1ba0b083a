"""IngestSession: a subscription as numbered, replayable batches, independent of Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from pullstream.client import SubscriberClient
from pullstream.exceptions import SubscriberClosed
from pullstream.spark.errors import MissingSegment, SpoolError
from pullstream.spark.spool.atomic_files import AtomicFiles
from pullstream.spark.spool.recovery import Recovery
from pullstream.spark.spool.segment import SegmentFile
from pullstream.spark.spool.segments import Segments, WrittenSegment
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock

from .message_buffer import MessageBuffer
from .prefetch import Prefetcher, PrefetchMode
from .settings import IngestSettings, Limit
from .subscription_source import SubscriptionSource

if TYPE_CHECKING:
    from typing_extensions import Self

_log = logging.getLogger("pullstream.spark")

# An "available now" run must end. It fails after _DRAIN_GIVE_UP seconds without a working stream.
# At its end it waits up to _DRAIN_FLUSH seconds for the server's answers to its acknowledgements.
_DRAIN_GIVE_UP = 60.0
_DRAIN_FLUSH = 10.0

# After the spool had no room for two segments, this many segments are not prefetched. A failed
# attempt costs as much as another batch.
_PAUSE_WITHOUT_ROOM = 20

REPORTED = (
    *("seq", "buffered", "leased"),
    *("suppressedDuplicates", "unackedCommitted", "spoolBytes", "lagMs"),
)


class IngestSession:
    """Batches of a subscription, stored on disk from planning until they are committed.

    Messages are acknowledged after the commit of their batch, and not before.

    A batch is a segment of the spool and has a number. The offset n means the segments 1 to n. The
    caller is an engine that plans a range of offsets, writes it down, processes it, and calls
    again: `latest(n)` and `commit(n)` prove that everything up to n is committed. After a crash,
    the engine first calls `segments` with the range that was planned and not committed, or `latest`
    if there is no such range. This first call determines which segments are kept. Later segments
    were never planned, or were planned by another engine; their messages are returned to the
    server.

    Only one thread at a time may call the methods. The first call that needs them locks the spool,
    opens the subscription and starts its threads; `close` ends all of them. With `work_ahead`,
    committed messages are acknowledged and the next segment is written while the engine processes
    the current batch, so `latest` waits for neither. A prefetched segment becomes part of the plan
    only when `latest` returns it. Until then it is ignored, also by recovery after a crash.

    Guarantees:
    - A message is acknowledged only when the engine has committed its segment, or when its id is in
      the done index.
    - The bytes of a segment never change.
    - A message that was received and not acknowledged is redelivered, here or elsewhere, within
      `lease_seconds` after the end of the process.

    Args:
        settings: The subscription, the spool and the limits.
        work_ahead: When to settle and prefetch; see PrefetchMode.
        clock: Source of time, for tests.
        disk: File operations, for tests.
        connect: Creates the client, for tests.
    """

    def __init__(
        self,
        settings: IngestSettings,
        *,
        work_ahead: PrefetchMode = PrefetchMode.OFF,
        clock: Clock = SYSTEM_CLOCK,
        disk: AtomicFiles | None = None,
        connect: Callable[[], SubscriberClient] | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._connect = connect or (lambda: SubscriberClient(**settings.connection))
        self._segments = Segments(settings, disk or AtomicFiles(), clock)
        self._buffer: MessageBuffer | None = None
        self._feed: SubscriptionSource | None = None
        self._prefetch = Prefetcher(work_ahead)
        # The prefetched segment that `latest` has not returned yet.
        self._next: WrittenSegment | None = None
        # Segments are prefetched only after this segment number.
        self._ahead_from = 0
        self._closed = False
        # The newest offset seen, and the offset up to which everything is known to be committed.
        self._seq = 0
        self._committed = 0
        # For an "available now" run: its start (wall time), and whether it has reached the end.
        self._until: float | None = None
        self._drained = False

    # ---- called by the engine --------------------------------------------------------------------

    def prepare_available_now(self) -> None:
        """Let `latest` come to an end, for an "available now" run.

        The end is reached when no message has arrived for the settings' `drain_wait`, or when all
        arriving messages were published after this call.
        """
        self._until = self._clock.now()

    def latest(self, start: int, limit: Limit | None = None) -> int:
        """Plan the next batch.

        Args:
            start: Offset up to which everything is committed.
            limit: Limits of the batch. Default: the limits of the settings.

        Returns:
            The offset at the end of the batch, or `start` if there are no messages now.

        Raises:
            SpoolError: The spool cannot be used, belongs to another checkpoint, or has no room for
                the batch.
            RpcError: The subscription has failed permanently, for example because it does not
                exist.
            SubscriberClosed: The session is closed.
        """
        buffer, feed = self._begin(start, start)
        within = (limit or Limit()).within(self._settings)
        self._end_prefetch(buffer)
        ready = self._next
        if ready is not None and (self._seq, ready.within) == (start, within):
            self._next = None
            return self._plan(ready, buffer)
        self._take_back(buffer)
        with buffer.precedence():
            self._segments.settle(buffer, self._committed)
        if self._seq > start:
            # The engine has not used the batch that was planned last.
            return self._seq
        if not self._drained:
            feed.check()
            if self._wait(buffer, *within):
                feed.check()
                with buffer.precedence():
                    cut = self._segments.cut(buffer, start, within, self._until)
                return start if cut is None else self._plan(cut, buffer)
            feed.check()
            self._drained = self._until is not None
        if self._drained:
            # No more messages are expected and this may be the last call, so wait for the server's
            # answers to the acknowledgements.
            buffer.release()
            feed.stop(_DRAIN_FLUSH)
        return start

    def segments(self, start: int, end: int) -> list[SegmentFile]:
        """Return the segments after `start`, up to and including `end`, in order.

        Raises:
            MissingSegment: A segment is lost, and the settings do not allow that.
            SpoolError: The spool cannot be used, or belongs to another checkpoint.
            SubscriberClosed: The session is closed.
        """
        if end <= start:
            return []
        self._begin(start, end)
        self.commit(start)
        return self._segments.agreement.find(start, end)

    def commit(self, end: int) -> None:
        """Acknowledge everything up to `end`, which is committed (see `Segments.settle`).

        Idempotent; never raises. If the done index cannot be written, the next call tries again.
        """
        is_news, self._committed = end > self._committed, max(self._committed, end)
        if self._buffer is None or self._closed:
            return
        if is_news or not self._prefetch.is_under_way:
            self._end_prefetch(self._buffer)
            self._segments.settle(self._buffer, self._committed)

    @property
    def is_caught_up(self) -> bool:
        """Whether the last `latest` ended because no more messages arrived, and not at a limit."""
        buffer, wait = self._buffer, self._settings.drain_wait
        return self._drained or (buffer is not None and buffer.is_quiet(wait))

    def report(self) -> dict[str, int]:
        """Return the state in numbers. All are 0 before the first call.

        `lagMs` is the age of the oldest message that is received and not committed, in
        milliseconds; 0 if there is none.
        """
        report = dict.fromkeys(REPORTED, 0)
        report["seq"] = self._seq
        if self._buffer is not None and self._feed is not None:
            report["unackedCommitted"] = self._feed.unanswered
            report["spoolBytes"] = self._segments.spool.size
            with self._buffer.ledger() as ledger:
                report["buffered"] = ledger.buffered
                report["leased"] = ledger.buffered + ledger.spooled
                report["suppressedDuplicates"] = ledger.suppressed
                report["unackedCommitted"] += ledger.spooled_up_to(self._committed)
                oldest = ledger.oldest_buffered
                uncommitted = [seq for seq in ledger.segments if seq > self._committed]
            report["lagMs"] = self._age(oldest, uncommitted)
        return report

    def _age(self, oldest: float | None, segments: list[int]) -> int:
        """Return the age of the oldest message in milliseconds.

        Args:
            oldest: The earliest publish time in the buffer.
            segments: Numbers of the segments.
        """
        times = [] if oldest is None else [oldest]
        for seq in segments:
            # A lost segment is reported by the engine's next call.
            with suppress(MissingSegment, OSError):
                found = self._segments.spool.get(seq).oldest_publish_time
                times += [] if found is None else [found]
        return round(max(self._clock.now() - min(times), 0) * 1000) if times else 0

    def close(self, timeout: float = 3.0) -> None:
        """Send acknowledgements, return the buffered messages, and release the spool.

        Segments that are planned and not committed stay in the spool, and their leases expire.
        Idempotent.

        Args:
            timeout: Maximum duration in seconds; the call may take slightly longer.
        """
        self._closed = True
        try:
            if self._buffer is not None and self._feed is not None:
                self._end_prefetch(self._buffer)
                self._take_back(self._buffer)
                self._buffer.release()
                self._feed.close(timeout)
        finally:
            if self._buffer is not None:
                self._buffer.close()
            self._segments.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- start and end ---------------------------------------------------------------------------

    def _begin(self, committed: int, planned: int) -> tuple[MessageBuffer, SubscriptionSource]:
        """On the first call, recover the segments of an earlier process and start to receive.

        Args:
            committed: Everything up to this offset is committed.
            planned: Segments up to this offset may be read again. Later ones were never planned;
                their messages are returned to the server.

        Returns:
            The message buffer and the subscription.
        """
        if self._closed:
            raise SubscriberClosed("this session is closed; create a new one")
        if self._buffer is None:
            self._segments.open()
            self._buffer = MessageBuffer(
                self._segments.done, self._clock, self._settings.column_subscription
            )
        if self._feed is None or planned > self._seq:
            self._segments.agreement.check(committed, planned)
        self._seq = max(self._seq, planned)
        self._committed = max(self._committed, committed)
        if self._feed is None:
            if planned > committed:
                # Before the subscription opens, because it may raise.
                self._segments.agreement.find(committed, planned)
            return self._buffer, self._receive(self._buffer, planned)
        return self._buffer, self._feed

    def _receive(self, buffer: MessageBuffer, planned: int) -> SubscriptionSource:
        recovery = Recovery(self._segments.spool, buffer, planned)
        give_up_after = None if self._until is None else _DRAIN_GIVE_UP
        # Assigned at once: if the process gets a SIGTERM during the next step, `close` must close
        # it.
        self._feed = feed = SubscriptionSource(
            self._connect(), self._settings, buffer, give_up_after=give_up_after
        )
        recovery.adopt(feed)
        return feed

    # ---- batches -------------------------------------------------------------------------------

    def _wait(self, buffer: MessageBuffer, max_messages: int, max_bytes: int) -> bool:
        settings, drains = self._settings, self._until is not None
        return buffer.wait(
            max_messages,
            max_bytes,
            linger=settings.linger,
            idle=settings.drain_wait if drains else settings.idle_wait,
            drain=drains,
        )

    def _plan(self, cut: WrittenSegment, buffer: MessageBuffer) -> int:
        """Record the segment as planned, and start to prefetch while the engine processes it."""
        self._seq, self._drained = cut.seq, cut.is_last
        if not self._drained:
            self._prefetch.start(lambda: self._go_ahead(buffer, cut))
        return cut.seq

    # ---- prefetch (depends on `work_ahead`) ------------------------------------------------------

    def _go_ahead(self, buffer: MessageBuffer, last: WrittenSegment) -> None:
        """Settle committed segments and write the next one while the engine processes `last`."""
        self._segments.settle(buffer, self._committed)
        if last.seq >= self._ahead_from and buffer.wait_until_full(
            *last.within, self._prefetch.is_over
        ):
            try:
                self._next = self._segments.cut(buffer, last.seq, last.within, self._until)
            except SpoolError as error:
                # Not reported: when the next segment is requested, `last` may be deleted, and there
                # is room.
                _log.debug("no segment is prefetched after segment %d: %s", last.seq, error)
                self._ahead_from = last.seq + _PAUSE_WITHOUT_ROOM

    def _end_prefetch(self, buffer: MessageBuffer) -> None:
        """Wait until the prefetch ends; then only the caller's thread uses the segments."""
        if self._prefetch.is_under_way:
            with buffer.precedence():
                self._prefetch.end(buffer.check_again)

    def _take_back(self, buffer: MessageBuffer) -> None:
        """Move the messages of an unrequested prefetched segment back to the buffer."""
        cut, self._next = self._next, None
        if cut is not None:
            self._segments.put_back(buffer, cut.seq)
