"""What an ingestion does with each micro-batch: decode it, write it, count it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from .decoding import Decoding, dated
from .targets import Target

if TYPE_CHECKING:
    from pyspark.sql import Column

# How long Spark may take to tell what it counted, in seconds. It does not tell at all if the target
# saw that it had the batch already, and left the rows alone.
_COUNT_WAIT = 10


class Refused(Exception):
    """A batch was not begun, because the job is to end. Spark hands it over again next time."""


@dataclass(frozen=True)
class Totals:
    """What was written: whole batches, and in them rows, of so many bytes of data, some of which
    did not decode."""

    batches: int = 0
    rows: int = 0
    bytes: int = 0
    bad: int = 0


class BatchHandler:
    """The function of a streaming query's `foreachBatch`.

    Spark's stream thread calls it, one batch at a time, over the thread of py4j's callbacks; the
    job's thread calls the rest. The lock guards what both see.

    Guarantees: when a call returns, the batch is in its target and its bad records are in theirs,
    once, however often it is called with the same batch. After `close` has returned True no batch
    is begun, and none is under way.

    Args:
        bad: for what does not decode; None if nothing can fail to.
        derived: columns that the target has besides those that the messages give: see `dated`.
        name: makes a batch's number unique for ever.
    """

    def __init__(
        self,
        decoding: Decoding,
        target: Target,
        bad: Target | None,
        *,
        derived: Sequence[str],
        name: Callable[[int], str],
    ) -> None:
        self._decoding = decoding
        self._target = target
        self._bad = bad
        self._derived = derived
        self._name = name
        self._lock = threading.Lock()
        self._totals = Totals()
        self._under_way: int | None = None
        self._closed = False
        # The last batch that was written, which Spark has still to note down.
        self.written: int | None = None
        self.failure: BaseException | None = None
        # Whether the end of the query is our doing.
        self.refused: bool = False

    @property
    def totals(self) -> Totals:
        with self._lock:
            return self._totals

    def close(self) -> bool:
        """Begin no batch any more; whether none is under way."""
        with self._lock:
            self._closed = True
            return self._under_way is None

    def __call__(self, messages: DataFrame, number: int) -> None:
        with self._lock:
            if self._closed:
                self.refused = True
                raise Refused(f"batch {number} was not begun")
            self._under_way = number
        try:
            written = self._write(messages, self._name(number))
        except BaseException as error:
            # Spark makes a text of it; the job's thread raises it as it is.
            self.failure = error
            raise
        finally:
            with self._lock:
                self._under_way = None
        with self._lock:
            self.written = number
            self._totals = Totals(
                self._totals.batches + 1,
                self._totals.rows + written["rows"],
                self._totals.bytes + written["bytes"],
                self._totals.bad + written["bad"],
            )

    def _write(self, messages: DataFrame, batch: str) -> dict[str, int]:
        read = self._decoding.read(messages)
        watch = Observation()
        watched = read.observe(watch, *_counts(self._decoding.is_bad()))
        rows = dated(self._decoding.good(watched), self._decoding.time, self._derived)
        wrote = self._target.write(rows, batch)
        counted = _counted(watch) if wrote else None
        # Killed between the two, the target has the batch and tells nothing of the bad ones.
        if self._bad is not None and (counted is None or counted["bad"]):
            self._bad.write(self._decoding.bad(read), batch)
        return counted or {"rows": 0, "bytes": 0, "bad": 0}


def _counts(is_bad: Column) -> list[Column]:
    """What is counted while the rows go by: another look at them would cost as much again."""
    return [
        F.count(F.lit(1)).alias("rows"),
        F.coalesce(F.sum(F.length("data")), F.lit(0)).alias("bytes"),
        F.count_if(is_bad).alias("bad"),
    ]


def _counted(watch: Observation) -> dict[str, Any] | None:
    """What was counted; None if the rows never went by. `Observation.get` would wait for ever."""
    jvm: Any = watch._jvm
    patience = jvm.scala.concurrent.duration.Duration.apply(f"{_COUNT_WAIT}s")
    try:
        jvm.scala.concurrent.Await.ready(watch._jo.future(), patience)  # type: ignore[union-attr]
    except Py4JJavaError:
        return None
    return watch.get
