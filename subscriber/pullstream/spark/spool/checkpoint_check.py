"""Check that a checkpoint and a spool belong together."""

from __future__ import annotations

import logging

from pullstream.spark.errors import MissingSegment, SpoolError

from .done_index import DoneIndex
from .segment import SegmentFile
from .spool import Spool

_log = logging.getLogger("pullstream.spark")


class CheckpointCheck:
    """Compares the offsets of a checkpoint with the contents of the spool.

    A spool belongs to one checkpoint, but users exchange them, restore old copies, or delete one of
    the two. An offset after everything that this spool has reached is refused. Otherwise an engine
    could acknowledge messages that it has never seen.

    An offset before the acknowledged segments loses no message by itself. But the engine will use
    the numbers of its batches again for other rows, and a sink that relies on batch numbers then
    overwrites or skips rows that it must keep. So such an offset is refused as well, unless
    `is_lenient`.

    Args:
        spool: The spool, which is open.
        done: The done index, which is loaded.
        is_lenient: Log missing segments instead of raising an error.
    """

    def __init__(self, spool: Spool, done: DoneIndex, *, is_lenient: bool) -> None:
        self._spool = spool
        self._done = done
        self._is_lenient = is_lenient

    def check(self, committed: int, planned: int) -> None:
        """Check the first offsets of an engine.

        An empty spool may replace a lost one. Offset 0 starts a new checkpoint, in any spool.

        Args:
            committed: Everything up to this offset is committed.
            planned: Segments up to this offset may be replayed. The same as `committed` if there is
                nothing to replay.

        Raises:
            SpoolError: The offsets cannot belong to this spool.
            MissingSegment: The offsets are older than the acknowledged segments, and the settings
                do not allow that.
        """
        newest = max([self._done.newest, *self._spool.numbers])
        if newest == 0:
            return
        if committed > newest:
            raise SpoolError(
                f"the checkpoint's offset is {committed}, but the last offset of the spool "
                f"{self._spool.folder} is {newest}: the spool belongs to another checkpoint, or is "
                "an old copy. Set spoolDir to the folder that this checkpoint has used, or to an "
                "empty one. Nothing was acknowledged"
            )
        if 0 < committed == planned < self._done.newest:
            self._complain(
                MissingSegment(
                    f"the checkpoint's offset is {planned}, but the spool {self._spool.folder} has "
                    f"acknowledged segments up to {self._done.newest}: the checkpoint is an old "
                    "copy, has lost its last batches, or another checkpoint has used the spool "
                    "since. The rows of these segments are in a sink, and new messages would get "
                    "the same batch ids. Restore the newest checkpoint; or start with an empty "
                    "checkpoint, and with an empty table if the sink relies on batch ids. If the "
                    "sink does not, failOnMissingSegment=false continues from here"
                )
            )

    def find(self, start: int, end: int) -> list[SegmentFile]:
        """Return the segments after `start`, up to and including `end`, in order.

        Raises:
            MissingSegment: A segment is lost, and the settings do not allow that.
        """
        if start == 0 and self._done.newest < end:
            # The first number of a new checkpoint follows all numbers of the previous one.
            start = self._done.newest
        found = []
        for seq in range(start + 1, end + 1):
            try:
                found.append(self._spool.get(seq))
            except MissingSegment as error:
                if seq < end and seq <= self._spool.newest_discarded:
                    # The plan has skipped this number, because a discarded segment had it.
                    continue
                self._complain(MissingSegment(f"{error}. {self._what_became_of(seq)}"))
        return found

    def _complain(self, error: MissingSegment) -> None:
        if not self._is_lenient:
            raise error
        _log.warning("%s. The query continues, because failOnMissingSegment is false", error)

    def _what_became_of(self, seq: int) -> str:
        if self._done.knows(seq):
            return (
                "It was committed and acknowledged before, so its rows are in the sink. But the "
                "checkpoint has lost the commit: it is an old copy, or the machine crashed. "
                "Restore the newest checkpoint, or mark the batch as committed, as described in "
                "docs/spark-runbook.md. failOnMissingSegment=false replays it as an "
                "empty batch: a sink that overwrites by batch id would lose these rows permanently"
            )
        if seq > self._done.newest > 0:
            return (
                "It was never acknowledged, so its messages will be redelivered in another batch. "
                "failOnMissingSegment=false replays this one as an empty batch and loses nothing"
            )
        return (
            "The spool does not know whether it was acknowledged. If the checkpoint is complete, "
            "it was not: its messages will be redelivered in another batch, and "
            "failOnMissingSegment=false replays this one as an empty batch. But if the checkpoint "
            "is an old copy, its rows may be in the sink, and a sink that overwrites by batch id "
            "would lose them permanently"
        )
