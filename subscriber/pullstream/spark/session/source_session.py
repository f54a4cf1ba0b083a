"""SourceSession: a subscription as planned, replayable batches, independent of Spark."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from secrets import token_hex
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pullstream.client import SubscriberClient
from pullstream.exceptions import SubscriberClosed
from pullstream.spark.errors import SpoolError
from pullstream.spark.protocol.coordinator import START, Coordinator, CoordinatorSettings, Offset
from pullstream.spark.protocol.elapsed import elapsed
from pullstream.spark.protocol.layout import Plan
from pullstream.spark.protocol.storage import Steps, Storage, T, probe, run
from pullstream.spark.receiving.message_buffer import MessageBuffer
from pullstream.spark.receiving.segment_writer import SegmentWriter
from pullstream.spark.receiving.subscription_source import SubscriptionSource
from pullstream.spark.settings import IngestSettings, Limit, Receivers
from pullstream.spark.spool_store import spool_errors
from pullstream.spark.store_errors import is_of_storage, store_cause
from pullstream.spark.stores import LocalFolder
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock

from .folder_lock import FolderLock
from .prefetch import Prefetcher, PrefetchMode
from .spool_warner import SpoolWarner

if TYPE_CHECKING:
    from typing_extensions import Self

_log = logging.getLogger("pullstream.spark")

# An "available now" run must end. It fails after DRAIN_GIVE_UP seconds without a working stream.
# At its end it waits up to _DRAIN_FLUSH seconds for the server's answers to its acknowledgements.
DRAIN_GIVE_UP = 60.0
_DRAIN_FLUSH = 10.0

# After a segment could not be prefetched, this many batches are processed without prefetching. A
# failed attempt costs as much as another batch.
_PAUSE_AFTER_FAILURE = 20

# Seconds between two removals of finished files.
_TIDY = 60.0

REPORTED = (
    *("plan", "buffered", "leased", "waitingSegments", "leftOut", "longCommitted"),
    *("unackedCommitted", "deliveryAttempts", "spoolBytes", "lagMs"),
)


class SourceSession:
    """Batches of a subscription, which are in a folder from planning until they are committed.

    It is the coordinator of the folder and, unless the receivers are outside, also its receiver.
    docs/spark-format.md describes the steps of both.

    The caller is an engine that asks for the next offset, writes it down, processes its batch, and
    calls again: `latest(n)` and `commit(n)` prove that everything up to n is committed. After a
    crash, the engine first calls `plan` with the range that was planned and not committed, or
    `latest` if there is no such range.

    Only one thread at a time may call the methods. The first call that needs them locks the folder
    if it is on this machine, opens the subscription and starts its threads; `close` ends all of
    them. With `work_ahead`, the session marks and acknowledges committed batches, and writes and
    plans the next one, while the engine processes the current batch, so `latest` waits for neither.

    Args:
        settings: The subscription, the spool and the limits.
        work_ahead: When to mark batches and prefetch; see PrefetchMode.
        clock: Source of time, for tests.
        storage: The folder, for tests.
        connect: Creates the client, for tests.
    """

    def __init__(
        self,
        settings: IngestSettings,
        *,
        work_ahead: PrefetchMode = PrefetchMode.OFF,
        clock: Clock = SYSTEM_CLOCK,
        storage: Storage | None = None,
        connect: Callable[[], SubscriberClient] | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._connect = connect
        self._storage: Storage = storage or settings.spool()
        self._lock: FolderLock | None = None
        self._coordinator: Coordinator | None = None
        self._receiving: _Receiving | None = None
        self._prefetch = Prefetcher(work_ahead)
        self._warner = SpoolWarner(settings.dedup_window)
        # The error that has ended the prefetch.
        self._failure: Exception | None = None
        # Number of batches that are processed without prefetching.
        self._pause = 0
        self._tidied = clock.monotonic()
        self._closed = False
        # Never set: a wait for segments of receivers outside.
        self._idle = threading.Event()
        # The newest offset that the engine has, and the number up to which all is committed.
        self._last: Offset = START
        self._committed = 0
        # For an "available now" run: its start (wall time), and whether it has reached the end.
        self._until: float | None = None
        self._received_all = False
        self._drained = False
        # The highest delivery attempt in the last segment.
        self._attempts = 0

    # ---- called by the engine --------------------------------------------------------------------

    def prepare_available_now(self) -> None:
        """Let `latest` come to an end, for an "available now" run.

        The end is reached when no message has arrived for the settings' `drain_wait`, or when all
        arriving messages were published after this call. With receivers outside it is reached after
        the segments that are there at the first call of `latest`.
        """
        self._until = self._clock.now()

    def latest(self, start: Offset, limit: Limit | None = None) -> Offset:
        """Plan the next batch.

        Args:
            start: Offset up to which everything is committed.
            limit: Limits of a segment. Default: the limits of the settings.

        Returns:
            The offset at the end of the batch, or `start` if there are no messages now.

        Raises:
            SpoolError: The spool cannot be used, or belongs to another checkpoint or query.
            RpcError: The subscription has failed permanently, for example because it does not
                exist.
            SubscriberClosed: The session is closed.
        """
        self._end_prefetch()
        with self._errors():
            coordinator = self._begin(start)
            within = (limit or Limit()).within(self._settings)
            offset = self._run(coordinator.planned_ahead(start))
            self._committed = max(self._committed, start.plan)
            if offset is None:
                offset = self._run(coordinator.latest(start))
                self._acknowledge(coordinator)
            receiving = self._receiving
            if receiving is not None:
                receiving.feed.check()
            if offset is None:
                offset = self._receive(coordinator, start, within)
            if offset is None:
                self._tidy(coordinator)
        self._warner.look(coordinator)
        if offset is None:
            return start
        self._last = offset
        self._prefetch.start(lambda: self._go_ahead(coordinator, offset, within))
        return offset

    def plan(self, start: Offset, end: Offset) -> Plan:
        """Return the plan of the batch from `start` to `end`; without parts if they are the same.

        Raises:
            MissingSegment: The plan is not there any more.
            SpoolError: The spool cannot be used, or belongs to another checkpoint or query.
            SubscriberClosed: The session is closed.
        """
        if start == end:
            return Plan(end.plan, 0, "", [])
        coordinator = self._coordinator
        if coordinator is not None and self._last == end:
            return coordinator.planned(end)
        self._end_prefetch()
        with self._errors():
            coordinator = self._begin(end)
            plan = self._run(coordinator.plan(start, end))
            self._acknowledge(coordinator)
        self._last = end
        return plan

    def commit(self, end: Offset) -> None:
        """Record that everything up to `end` is committed. Idempotent; never raises.

        It is marked and acknowledged while the engine processes the next batch, or when `latest` is
        called.
        """
        self._committed = max(self._committed, end.plan)
        if self._coordinator is not None and not self._closed and not self._prefetch.is_under_way:
            self._mark(self._coordinator)

    @property
    def is_caught_up(self) -> bool:
        """Whether the last `latest` ended because no more messages arrived, and not at a limit."""
        receiving, wait = self._receiving, self._settings.drain_wait
        return self._drained or (receiving is not None and receiving.buffer.is_quiet(wait))

    def report(self) -> dict[str, int]:
        """Return the state in numbers. All are 0 before the first call.

        `lagMs` is the age of the oldest message that this process has received and not committed,
        in milliseconds; 0 if there is none.
        """
        report = dict.fromkeys(REPORTED, 0)
        report["plan"] = self._last.plan
        if self._coordinator is not None:
            counts = self._coordinator.counts
            report["waitingSegments"] = counts.waiting
            report["leftOut"] = counts.left_out
            report["longCommitted"] = counts.long_committed
        if self._receiving is not None:
            buffer, writer, feed = self._receiving
            report["deliveryAttempts"] = self._attempts
            report["spoolBytes"] = writer.receiver.waiting_bytes
            with buffer.messages() as waiting:
                report["buffered"] = waiting.buffered
                report["leased"] = waiting.buffered + waiting.held
                report["unackedCommitted"] = feed.unanswered
                oldest = waiting.oldest
            if oldest is not None:
                report["lagMs"] = round(max(self._clock.now() - oldest, 0) * 1000)
        return report

    def close(self, timeout: float = 3.0) -> None:
        """Send acknowledgements, return the buffered messages, and release the spool. Idempotent.

        Segments that are not committed stay in the spool. The leases of their messages end.

        Args:
            timeout: Maximum duration in seconds; the call may take slightly longer.
        """
        self._closed = True
        receiving = self._receiving
        try:
            self._end_prefetch()
            if receiving is not None:
                receiving.buffer.release()
                receiving.feed.close(timeout)
        finally:
            if receiving is not None:
                receiving.buffer.close()
            lock, self._lock = self._lock, None
            if lock is not None:
                lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- start and end ---------------------------------------------------------------------------

    def _begin(self, offset: Offset) -> Coordinator:
        """On the first call, lock the folder, read it, and start to receive."""
        if self._closed:
            raise SubscriberClosed("this session is closed; create a new one")
        if self._failure is not None:
            raise self._failure
        if self._lock is None and isinstance(self._storage, LocalFolder):
            self._lock = FolderLock(self._storage.folder, self._clock)
        if self._coordinator is None:
            if self._receiving is None:
                probe(self._storage, token_hex(16))
            coordinator = Coordinator(coordinator_settings(self._settings), elapsed=elapsed)
            self._run(coordinator.open(offset))
            if self._until is not None and self._settings.receivers is Receivers.OUTSIDE:
                self._run(coordinator.end_here(offset))
            self._coordinator = coordinator
        if self._receiving is None and self._settings.receivers is Receivers.EMBEDDED:
            self._receiving = self._receiver()
        return self._coordinator

    def _receiver(self) -> _Receiving:
        writer = SegmentWriter(self._settings, self._storage, clock=self._clock)
        writer.start()
        give_up_after = None if self._until is None else DRAIN_GIVE_UP
        feed = SubscriptionSource(
            self._settings, writer.buffer, self._connect, give_up_after=give_up_after
        )
        return _Receiving(writer.buffer, writer, feed)

    def _run(self, steps: Steps[T]) -> T:
        return run(steps, self._storage)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Report errors of the storage. The coordinator is created again after them."""
        with spool_errors(str(self._settings.spool_dir)):
            try:
                yield
            except Exception as error:
                if is_of_storage(error):
                    self._coordinator = None
                raise

    # ---- batches ---------------------------------------------------------------------------------

    def _receive(
        self, coordinator: Coordinator, start: Offset, within: tuple[int, int]
    ) -> Offset | None:
        """Wait for messages, write them as a segment, and plan it; None: there are none now."""
        offset: Offset | None = None
        receiving = self._receiving
        if receiving is None:
            self._drained = self._until is not None
            if self._drained or self._idle.wait(self._settings.idle_wait):
                return None
            return self._run(coordinator.latest(start))
        while offset is None and not self._received_all:
            if not self._wait(receiving.buffer, within):
                receiving.feed.check()
                self._received_all = self._until is not None
                break
            receiving.feed.check()
            with receiving.buffer.precedence():
                self._write(coordinator, receiving.writer, within)
                offset = self._run(coordinator.latest(start))
        if offset is None and self._received_all:
            # This may be the last call, so wait for the server's answers to the acknowledgements.
            self._drained = True
            receiving.buffer.release()
            receiving.feed.stop(_DRAIN_FLUSH)
        return offset

    def _wait(self, buffer: MessageBuffer, within: tuple[int, int]) -> bool:
        settings, drains = self._settings, self._until is not None
        return buffer.wait(
            *within,
            linger=settings.linger,
            idle=settings.drain_wait if drains else settings.idle_wait,
            drain=drains,
        )

    def _write(
        self, coordinator: Coordinator, writer: SegmentWriter, within: tuple[int, int]
    ) -> None:
        written = writer.write(*within)
        if written is not None and written.manifest is not None:
            self._attempts = written.manifest.attempts
            coordinator.hand_over(written.manifest)
            is_last = written.is_all and len(written.publish_times) < within[0]
            if self._until is not None and is_last:
                # The buffer is empty and all its messages are newer than the run. Without an end
                # here, the run would follow the topic for ever.
                self._received_all = self._are_younger(written.publish_times, self._until)

    def _are_younger(self, times: pa.Array, than: float) -> bool:
        """Return whether all publish times are later than a time of the driver's clock.

        The publish times come from the server. If one of them is in the future, the driver's clock
        is slow, by at least that difference.
        """
        found = pc.min_max(times.cast(pa.int64())).as_py()
        oldest: float = found["min"] / 1e6
        newest: float = found["max"] / 1e6
        return oldest > than + max(newest - self._clock.now(), 0.0)

    # ---- while the engine works (depends on `work_ahead`) ---------------------------------------

    def _go_ahead(self, coordinator: Coordinator, last: Offset, within: tuple[int, int]) -> None:
        """Mark committed batches, and plan the next one while the engine processes `last`."""
        self._mark(coordinator)
        if self._coordinator is not coordinator or self._failure is not None:
            return
        with self._noted_errors():
            self._tidy(coordinator)
            self._prepare(coordinator, last, within)

    def _mark(self, coordinator: Coordinator) -> None:
        """Mark committed batches, and acknowledge their messages. Never raises."""
        with self._noted_errors():
            try:
                if self._committed > coordinator.mark:
                    self._run(coordinator.commit(self._committed))
            finally:
                self._acknowledge(coordinator)

    def _acknowledge(self, coordinator: Coordinator) -> None:
        segments = coordinator.take_marked()
        if self._receiving is not None:
            self._receiving.writer.committed(segments)

    def _prepare(self, coordinator: Coordinator, last: Offset, within: tuple[int, int]) -> None:
        """Write and plan the next batch, if it becomes full before it is requested."""
        if self._receiving is None or self._received_all:
            return
        if self._pause:
            self._pause -= 1
            return
        buffer, writer, _ = self._receiving
        if buffer.wait_until_full(*within, self._prefetch.is_over):
            with buffer.messages() as waiting:
                size = min(waiting.size, within[1])
            if not writer.receiver.has_room(size):
                return
            try:
                self._write(coordinator, writer, within)
            except SpoolError as error:
                # Reported when the next batch is requested, if there is no room by then.
                _log.debug("no segment is prefetched after plan %d: %s", last.plan, error)
                self._pause = _PAUSE_AFTER_FAILURE
                return
            self._run(coordinator.plan_ahead(last))

    def _tidy(self, coordinator: Coordinator) -> None:
        """Remove finished files, once a minute."""
        now = self._clock.monotonic()
        if now - self._tidied < _TIDY:
            return
        self._tidied = now
        before = self._run(coordinator.tidy())
        if before is not None and isinstance(self._storage, LocalFolder):
            self._storage.remove_remains(before)
        if self._receiving is not None:
            # Segments that somebody has skipped have no mark.
            self._receiving.writer.look()

    @contextmanager
    def _noted_errors(self) -> Iterator[None]:
        """Do not raise errors. The next call of the engine reports an error that remains."""
        try:
            yield
        except Exception as error:
            if not is_of_storage(error):
                self._failure = error
                return
            _log.error(
                "the spool %s cannot be used (%s); messages of the last batches are not "
                "acknowledged yet",
                self._settings.spool_dir,
                store_cause(error),
            )
            self._coordinator = None

    def _end_prefetch(self) -> None:
        """Wait until the prefetch ends; then only the caller's thread uses the folder."""
        if self._prefetch.is_under_way and self._receiving is not None:
            with self._receiving.buffer.precedence():
                self._prefetch.end(self._receiving.buffer.check_again)
        else:
            self._prefetch.end(lambda: None)


class _Receiving(NamedTuple):
    """The embedded receiver."""

    buffer: MessageBuffer
    writer: SegmentWriter
    feed: SubscriptionSource


def coordinator_settings(settings: IngestSettings) -> CoordinatorSettings:
    """Return the settings of the coordinator of a source."""
    return CoordinatorSettings(
        subscription=settings.subscription,
        acknowledge=settings.acknowledge,
        window=settings.dedup_window,
        capacity=settings.dedup_messages,
        lease=settings.lease_seconds,
        max_rows=settings.max_messages_per_trigger,
        max_bytes=settings.max_bytes_per_trigger,
    )
