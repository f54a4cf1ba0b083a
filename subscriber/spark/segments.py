"""The steps of a segment: cut from the buffer, put back, acknowledged and forgotten."""

from __future__ import annotations

import logging
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from protocol.clock import Clock
from subscriber.message import MessageBatch

from .agreement import Agreement
from .disk import Disk
from .done_index import DoneIndex
from .intake import Intake
from .prepared import PreparedRows
from .segment import encode
from .settings import IngestSettings
from .spool import Spool

_log = logging.getLogger("pullstream.spark")


class Cut(NamedTuple):
    """A segment that was written.

    within: the messages and bytes that it was to have at most.
    is_last: whether an "available now" run ends with it.
    """

    seq: int
    within: tuple[int, int]
    is_last: bool


class Segments:
    """Owner of the spool, of the done index, and of the rows that were made before.

    One thread at a time calls it; beside it another may look for a segment and ask for the spool's
    size, and the subscription's worker adds rows and asks the done index.
    """

    def __init__(self, settings: IngestSettings, disk: Disk, clock: Clock) -> None:
        self._clock = clock
        self.spool: Spool = Spool(settings, disk, clock)
        self.done: DoneIndex = DoneIndex(settings, disk, clock)
        self.rows: PreparedRows = PreparedRows(settings.column_subscription)
        self.agreement: Agreement = Agreement(
            self.spool, self.done, is_lenient=not settings.fail_on_missing_segment
        )

    def open(self) -> None:
        """Take the spool's lock and read what is there.

        Raises:
            SpoolError: the spool cannot be used; then it is not taken.
        """
        self.spool.open()
        try:
            self.done.load()
        except BaseException:
            self.spool.close()
            raise

    def close(self) -> None:
        """Let the spool go. Idempotent."""
        self.spool.close()

    def cut(
        self, intake: Intake, after: int, within: tuple[int, int], until: float | None
    ) -> Cut | None:
        """Make a segment of the first of the buffer; None if there is nothing in it any more.

        Args:
            after: the engine's offset. The number of the segment is the next, or, where the spool
                has served another checkpoint, the next after all that is acknowledged.
            within: messages and bytes that it has at most.
            until: the wall time when an "available now" run began; None: it is not one.

        Raises:
            SpoolError: it cannot be written; then its messages are in the buffer again.
        """
        seq = max(after, self.done.newest) + 1
        messages, is_all = intake.cut(seq, *within)
        if not messages:
            # Their leases were lost since somebody saw them.
            return None
        try:
            rows = self.rows.take(messages)
            data, batches = encode(rows)
            self.spool.write(seq, len(messages), batches, data)
        except BaseException:
            self.put_back(intake, seq)
            raise
        is_last = False
        if until is not None and is_all and len(messages) < within[0]:
            # Caught up with, and younger than the run: without an end, it would follow the topic.
            is_last = self._are_younger(rows.column("publish_time"), until)
        return Cut(seq, within, is_last)

    def _are_younger(self, times: pa.Array, than: float) -> bool:
        """Whether all of these times of publishing are behind that time of the driver's clock.

        They are the server's. One that is still to come shows that the driver's clock is slow, and
        by how much at least.
        """
        found = pc.min_max(times.cast(pa.int64())).as_py()
        oldest: float = found["min"] / 1e6
        newest: float = found["max"] / 1e6
        return oldest > than + max(newest - self._clock.now(), 0.0)

    def put_back(self, intake: Intake, seq: int) -> None:
        """A segment that nobody was told of is none: its messages are in the buffer again."""
        with intake.ledger() as ledger:
            ledger.put_back(seq)
        self.spool.remove(seq)

    def settle(self, intake: Intake, committed: int) -> None:
        """Acknowledge the segments up to `committed`, one after the other. Never raises.

        The done index comes before the acknowledgement: after a crash between the two the messages
        come again, and are known. If it cannot be written, the next call tries again.
        """
        with intake.ledger() as ledger:
            segments = [(seq, ledger.keys(seq)) for seq in ledger.segments if seq <= committed]
        for seq, keys in segments:
            try:
                self.done.add(seq, keys)
            except OSError as error:
                _log.error(
                    "segment %d is committed, but cannot be noted (%s): its messages are not "
                    "acknowledged yet",
                    seq,
                    error,
                )
                return
            with intake.ledger() as ledger:
                messages = ledger.committed(seq)
            MessageBatch(messages).ack()
            self.spool.remove(seq)
