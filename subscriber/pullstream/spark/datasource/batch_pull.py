"""One batch read: messages are pulled into the spool, planned, and acknowledged on request."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pullstream.client import SubscriberClient
from pullstream.spark.errors import SpoolError
from pullstream.spark.protocol.coordinator import START, Coordinator, Offset
from pullstream.spark.protocol.elapsed import elapsed
from pullstream.spark.protocol.layout import Plan
from pullstream.spark.protocol.storage import run
from pullstream.spark.receiving.final_acks import acknowledge
from pullstream.spark.receiving.segment_writer import SegmentWriter
from pullstream.spark.receiving.subscription_source import SubscriptionSource
from pullstream.spark.session.source_session import coordinator_settings
from pullstream.spark.settings import IngestSettings
from pullstream.spark.spool_store import spool_errors
from pullstream.spark.stores import Bucket, LocalFolder

from .batch_journal import Content, Journal, Leases

_log = logging.getLogger("pullstream.spark")

# A read fails after this time without a working stream, in seconds.
_GIVE_UP = 60.0

# Time for the return of messages that are not used, and time for the server's answers to
# acknowledgements, in seconds.
_RETURN = 3.0
_ANSWERS = 10.0


class BatchSpool:
    """The spool of batch reads.

    Spark plans each action on a DataFrame in another process, so an object serves one action or one
    `ack`. The engine of its coordinator is the caller: what `ack` acknowledges is committed.

    Args:
        settings: The subscription, the spool and the limits of a read.
        connect: Creates the client, for tests.
    """

    def __init__(
        self,
        settings: IngestSettings,
        connect: Callable[[], SubscriberClient] | None = None,
    ) -> None:
        self._settings = settings
        self._connect = connect or (lambda: SubscriberClient(**settings.connection))
        self.store: LocalFolder | Bucket = settings.spool()
        self.journal: Journal = Journal(self.store, str(settings.spool_dir))
        self._coordinator = Coordinator(coordinator_settings(settings), elapsed=elapsed)

    def pull(self, number: int | None = None) -> Plan | None:
        """Return the plan of the unacknowledged rows, or pull new ones.

        Args:
            number: Number of the read to which the DataFrame belongs. None: any read.

        Returns:
            The plan. None: there are no rows.

        Raises:
            SpoolError: The spool cannot be used, or the rows of the DataFrame are already
                acknowledged.
            RpcError: The subscription cannot be pulled from.
        """
        with spool_errors(str(self._settings.spool_dir)), self.journal.locked():
            read = self.journal.content()
            if number is not None and number <= read.number:
                if number < read.number or read.is_over:
                    raise SpoolError(
                        f"the rows of this DataFrame, from {self._settings.spool_dir}, were "
                        "acknowledged, so it is empty now. Call BatchRead.load() for the next "
                        "rows. To use rows after ack(), store or cache them before"
                    )
            elif read.planned is None:
                read = self._next(read)
            return self._plan(read)

    def ack(self) -> int:
        """Acknowledge the rows of the last read, and return their number."""
        with spool_errors(str(self._settings.spool_dir)), self.journal.locked():
            read = self.journal.content()
            if read.planned is None:
                return 0
            # The journal is written first, as the proof: after a kill in between, the next read
            # completes the acknowledgement.
            over = read._replace(committed=read.planned, planned=None, rows=0, is_over=True)
            self.journal.write(over)
            self._settle(over)
            self._delete_rows(read.planned)
            return read.rows

    def state(self) -> Content:
        """Return the state of the last read."""
        with spool_errors(str(self._settings.spool_dir)):
            return self.journal.content()

    def _plan(self, read: Content) -> Plan | None:
        if read.planned is None:
            return None
        return run(self._coordinator.plan(read.committed, read.planned), self.store)

    def _next(self, last: Content) -> Content:
        """Pull the rows of the next read, and return the state with them."""
        self._settle(last)
        is_all = False
        # There may be rows of a read that was killed before it had written its state.
        planned = self._latest(last)
        if planned is None:
            is_all = self._receive()
            planned = self._latest(last)
        read = Content(last.number + 1, False, is_all, last.committed, planned)
        plan = self._plan(read)
        if plan is not None and planned is not None:
            leases = self.journal.leases()
            if leases is not None and leases.segment not in (part.segment for part in plan.parts):
                # The segment is in a later plan. Its messages come again, and are left out.
                self.journal.delete_leases()
            read = read._replace(rows=sum(part.taken for part in plan.parts))
            if not read.rows:
                # All were acknowledged by an earlier read, and come again for that reason.
                last = last._replace(committed=planned)
                self.journal.write(last)
                return self._next(last)
        self.journal.write(read)
        if not is_all:
            settings = self._settings
            _log.warning(
                "the read of %s has reached a limit (maxMessages %d, maxBytes %d, maxSeconds %g); "
                "there may be more messages for the next read",
                settings.subscription,
                settings.max_messages_per_trigger,
                settings.max_bytes_per_trigger,
                settings.linger,
            )
        return read

    def _latest(self, read: Content) -> Offset | None:
        self._coordinator.expect_segment()
        return run(self._coordinator.latest(read.committed), self.store)

    def _receive(self) -> bool:
        """Write the messages that are there now as a segment, up to the limits of a read.

        Returns:
            Whether there are no more messages.
        """
        settings = self._settings
        writer = SegmentWriter(settings, self.store)
        writer.start()
        buffer = writer.buffer
        source = SubscriptionSource(settings, buffer, self._connect, give_up_after=_GIVE_UP)
        try:
            limits = settings.max_messages_per_trigger, settings.max_bytes_per_trigger
            idle = settings.drain_wait
            has_some = buffer.wait(*limits, linger=settings.linger, idle=idle, drain=True)
            source.check()
            if not has_some:
                return True
            written = writer.write(*limits)
            if written is not None and written.manifest is not None:
                with buffer.messages() as waiting:
                    held = {one.message_id: one.ack_id for one in waiting.all_held()}
                self.journal.write_leases(Leases(written.manifest.segment, held))
            return buffer.is_quiet(idle)
        finally:
            buffer.release()
            source.close(_RETURN)
            buffer.close()

    def _settle(self, read: Content) -> None:
        """Mark everything as committed that the state says to be, and acknowledge it."""
        if read.committed == START:
            return
        run(self._coordinator.open(read.committed), self.store)
        run(self._coordinator.commit(read.committed.plan), self.store)
        if (leases := self.journal.leases()) is None:
            return
        with self._connect() as client:
            acknowledge(client, self._settings.subscription, leases.ack_ids.values(), _ANSWERS)
        self.journal.delete_leases()
        old = run(self._coordinator.tidy(), self.store)
        if old is not None and isinstance(self.store, LocalFolder):
            self.store.remove_remains(old)

    def _delete_rows(self, committed: Offset) -> None:
        """Delete the segments of the last read, so that an action on an old DataFrame fails.

        The journal is not lost as Spark's last commit may be, so nobody reads them again.
        """
        plan = run(self._coordinator.plan(committed, committed), self.store)
        for part in plan.parts:
            self.store.delete(part.segment.path)
