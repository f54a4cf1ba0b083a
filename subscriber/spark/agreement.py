"""Whether the checkpoint that asks and the spool that is asked belong together."""

from __future__ import annotations

import logging

from .done_index import DoneIndex
from .errors import MissingSegment, SpoolError
from .segment import SegmentFile
from .spool import Spool

_log = logging.getLogger("pullstream.spark")


class Agreement:
    """What a checkpoint says of offsets, held against what the spool knows.

    Numbers of segments only rise and none is used twice, so what an offset of this spool says is
    said of this very segment. Segments beyond it are nobody's: another checkpoint may have planned
    them. So an offset is refused that is another spool's, or beyond all that this one has planned;
    else an engine could have messages acknowledged that it has never seen.

    An offset below what was acknowledged costs no message by itself. But the engine will give the
    numbers of its batches to other rows, and then a sink that goes by them overwrites or skips
    what it should keep: that is refused as well, unless `is_lenient`.
    """

    def __init__(self, spool: Spool, done: DoneIndex, *, is_lenient: bool) -> None:
        self._spool = spool
        self._done = done
        self._is_lenient = is_lenient

    def check(self, spool_id: str | None, committed: int, planned: int) -> None:
        """An engine begins with these offsets, the same two if it replays nothing.

        A spool in which nothing was ever planned takes the place of one that is lost. At 0 begins a
        new checkpoint, in any spool.

        Args:
            spool_id: the spool that the offsets name; None: they name none.

        Raises:
            SpoolError: they are not this spool's.
        """
        spool, folder = self._spool, self._spool.folder
        if planned == 0:
            return
        if spool.newest == 0:
            spool.take_place(spool_id, planned)
        elif not spool.is_meant_by(spool_id, planned):
            raise SpoolError(
                f"the checkpoint's offset {planned} is of the spool {spool_id}, but {folder} is "
                f"the spool {spool.id}, of another checkpoint. Set spoolDir to the folder that "
                "this checkpoint has used, or to an empty one. Nothing was acknowledged"
            )
        elif planned > spool.newest:
            raise SpoolError(
                f"the checkpoint's offset is {planned}, but the spool {folder} has only come to "
                f"{spool.newest}: it is of another checkpoint, or an old copy. Set spoolDir to the "
                "folder that this checkpoint has used, or to an empty one. Nothing was acknowledged"
            )
        elif 0 < committed == planned < self._done.newest:
            self._complain(
                MissingSegment(
                    f"the checkpoint's offset is {planned}, but the spool {folder} has "
                    f"acknowledged segments up to {self._done.newest}: the checkpoint is an old "
                    "copy, has lost its last batches, or another one has used the spool since. "
                    "Their rows are in a sink, and new messages would come under the batch ids "
                    "that they have there. Bring back the newest checkpoint; or begin with an "
                    "empty one, and an empty table if the sink goes by batch ids. Where it does "
                    "not, failOnMissingSegment=false goes on from here"
                )
            )

    def find(self, seq: int) -> list[SegmentFile]:
        """The segment of a batch that is asked for, in a list; none if it is lost and may be.

        Raises:
            MissingSegment: it is lost, and the settings do not allow that.
        """
        try:
            return [self._spool.get(seq)]
        except MissingSegment as error:
            self._complain(MissingSegment(f"{error}. {self._what_became_of(seq)}"))
            return []

    def _complain(self, error: MissingSegment) -> None:
        if not self._is_lenient:
            raise error
        _log.warning("%s. It goes on, as failOnMissingSegment is false", error)

    def _what_became_of(self, seq: int) -> str:
        if self._done.knows(seq):
            return (
                "It was committed and acknowledged before, so its rows are in the sink; but the "
                "checkpoint does not know that any more: it is an old copy, or the machine went "
                "down. Bring back the newest checkpoint, or note the batch as committed, as "
                "docs/spark.md tells ('The spool'). failOnMissingSegment=false replays it as an "
                "empty batch: a sink that overwrites by batch id would lose these rows for good"
            )
        if seq > max(self._done.newest, self._spool.begun_after):
            return (
                "It was never acknowledged: its messages come again, in another batch. "
                "failOnMissingSegment=false takes this one for empty, and loses nothing"
            )
        return (
            "Whether it was ever acknowledged is not known here. If the checkpoint is whole, it "
            "was not: its messages come again, in another batch, and failOnMissingSegment=false "
            "takes this one for empty. But if the checkpoint is an old copy, its rows may be in "
            "the sink, and one that overwrites by batch id would lose them for good"
        )
