"""Lifecycle of segments: written from the buffer, returned to it, or acknowledged."""

from __future__ import annotations

import logging
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pullstream.message import MessageBatch
from pullstream.spark.session.message_buffer import MessageBuffer
from pullstream.spark.session.message_group import rows_of
from pullstream.spark.session.settings import IngestSettings
from pullstream_protocol.clock import Clock

from .atomic_files import AtomicFiles
from .checkpoint_check import CheckpointCheck
from .done_index import DoneIndex
from .segment import encode
from .spool import Spool

_log = logging.getLogger("pullstream.spark")


class WrittenSegment(NamedTuple):
    """A segment that was written.

    Attributes:
        seq: Number of the segment.
        within: The limits of messages and bytes under which it was written.
        is_last: Whether an "available now" run ends with this segment.
    """

    seq: int
    within: tuple[int, int]
    is_last: bool


class Segments:
    """Owner of the spool and the done index.

    Only one thread at a time calls the methods. At the same time, another thread may look up a
    segment or read the size of the spool, and the subscription's worker queries the done index.
    """

    def __init__(self, settings: IngestSettings, disk: AtomicFiles, clock: Clock) -> None:
        self._clock = clock
        self.spool: Spool = Spool(settings, disk, clock)
        self.done: DoneIndex = DoneIndex(settings, disk, clock)
        self._subscription = settings.column_subscription
        self.agreement: CheckpointCheck = CheckpointCheck(
            self.spool, self.done, is_lenient=not settings.fail_on_missing_segment
        )

    def open(self) -> None:
        """Lock the spool and read its contents.

        Raises:
            SpoolError: The spool cannot be used; then it is not locked.
        """
        self.spool.open()
        try:
            self.done.load()
        except BaseException:
            self.spool.close()
            raise

    def close(self) -> None:
        """Release the spool's lock. Idempotent."""
        self.spool.close()

    def cut(
        self, buffer: MessageBuffer, after: int, within: tuple[int, int], until: float | None
    ) -> WrittenSegment | None:
        """Write the first messages of the buffer to a segment.

        Args:
            buffer: The buffer.
            after: The engine's offset. The segment gets the next number that no acknowledged or
                discarded segment has had, because a checkpoint may refer to such a segment.
            within: Maximum number of messages and bytes.
            until: Wall time when an "available now" run began. None: this is not such a run.

        Returns:
            The segment, or None if the buffer is empty.

        Raises:
            SpoolError: The segment cannot be written; its messages are in the buffer again.
        """
        seq = max(after, self.done.newest, self.spool.newest_discarded) + 1
        groups, is_all = buffer.cut(seq, *within)
        if not groups:
            # The leases of all buffered messages were lost after the caller looked.
            return None
        try:
            rows = rows_of(groups, self._subscription)
            data, batches = encode(rows)
            self.spool.write(seq, rows.num_rows, batches, data)
        except BaseException:
            self.put_back(buffer, seq)
            raise
        is_last = False
        if until is not None and is_all and rows.num_rows < within[0]:
            # The buffer is empty and all its messages are newer than the run. Without an end here,
            # the run would follow the topic for ever.
            is_last = self._are_younger(rows.column("publish_time"), until)
        return WrittenSegment(seq, within, is_last)

    def _are_younger(self, times: pa.Array, than: float) -> bool:
        """Return whether all publish times are later than a time of the driver's clock.

        The publish times come from the server. If one of them is in the future, the driver's clock
        is slow, by at least that difference.
        """
        found = pc.min_max(times.cast(pa.int64())).as_py()
        oldest: float = found["min"] / 1e6
        newest: float = found["max"] / 1e6
        return oldest > than + max(newest - self._clock.now(), 0.0)

    def put_back(self, buffer: MessageBuffer, seq: int) -> None:
        """Move the messages of an unannounced segment back to the buffer and delete its file."""
        with buffer.ledger() as ledger:
            ledger.put_back(seq)
        self.spool.remove(seq)

    def settle(self, buffer: MessageBuffer, committed: int) -> None:
        """Acknowledge the segments up to `committed`, in order. Never raises.

        The done index is written before the acknowledgement: after a crash between the two, the
        messages are redelivered and recognized as duplicates. If the index cannot be written, the
        next call tries again.
        """
        with buffer.ledger() as ledger:
            segments = [(seq, ledger.keys(seq)) for seq in ledger.segments if seq <= committed]
        for seq, keys in segments:
            try:
                self.done.add(seq, keys)
            except OSError as error:
                _log.error(
                    "segment %d is committed, but the done index cannot be written (%s); its "
                    "messages are not acknowledged yet",
                    seq,
                    error,
                )
                return
            with buffer.ledger() as ledger:
                messages = ledger.committed(seq)
            MessageBatch(messages).ack()
            self.spool.remove(seq)
