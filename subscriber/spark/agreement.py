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

    A spool belongs to one checkpoint, but people exchange them, bring back old copies, or delete
    one of the two. An offset is refused that is beyond all that this spool has come to: else an
    engine could have messages acknowledged that it has never seen.

    An offset below what was acknowledged costs no message by itself. But the engine will give the
    numbers of its batches to other rows, and then a sink that goes by them overwrites or skips
    what it should keep: that is refused as well, unless `is_lenient`.
    """

    def __init__(self, spool: Spool, done: DoneIndex, *, is_lenient: bool) -> None:
        self._spool = spool
        self._done = done
        self._is_lenient = is_lenient

    def check(self, committed: int, planned: int) -> None:
        """An engine begins with these offsets, the same two if it replays nothing.

        An empty spool takes the place of one that is lost. At 0 begins a new checkpoint, in any
        spool.

        Raises:
            SpoolError: they cannot be this spool's.
            MissingSegment: they are older than what is acknowledged, and that is not allowed.
        """
        newest = max([self._done.newest, *self._spool.numbers])
        if newest == 0:
            return
        if committed > newest:
            raise SpoolError(
                f"the checkpoint's offset is {committed}, but the spool {self._spool.folder} has "
                f"only come to {newest}: it is of another checkpoint, or an old copy. Set spoolDir "
                "to the folder that this checkpoint has used, or to an empty one. Nothing was "
                "acknowledged"
            )
        if 0 < committed == planned < self._done.newest:
            self._complain(
                MissingSegment(
                    f"the checkpoint's offset is {planned}, but the spool {self._spool.folder} has "
                    f"acknowledged segments up to {self._done.newest}: the checkpoint is an old "
                    "copy, has lost its last batches, or another one has used the spool since. "
                    "Their rows are in a sink, and new messages would come under the batch ids "
                    "that they have there. Bring back the newest checkpoint; or begin with an "
                    "empty one, and an empty table if the sink goes by batch ids. Where it does "
                    "not, failOnMissingSegment=false goes on from here"
                )
            )

    def find(self, start: int, end: int) -> list[SegmentFile]:
        """The segments after `start`, up to and with `end`, in order.

        Raises:
            MissingSegment: one is lost, and the settings do not allow that.
        """
        if start == 0 and self._done.newest < end:
            # The first number of a new checkpoint is behind all those of the one before.
            start = self._done.newest
        found = []
        for seq in range(start + 1, end + 1):
            try:
                found.append(self._spool.get(seq))
            except MissingSegment as error:
                self._complain(MissingSegment(f"{error}. {self._what_became_of(seq)}"))
        return found

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
        if seq > self._done.newest > 0:
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
