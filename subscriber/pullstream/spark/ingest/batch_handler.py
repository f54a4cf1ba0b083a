"""Processing of micro-batches in an ingestion: decode, write and count."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from pullstream.spark.tables.batch import BatchName

from .decoding import Decoding
from .targets import Target

if TYPE_CHECKING:
    from pyspark.sql import Column


class Refused(Exception):
    """A batch was not started, because the job is ending. Spark passes it to the next run."""


class Phase(Enum):
    """What a job does now."""

    STARTING = "starting Spark"
    WAITING = "waiting for messages"
    WRITING = "writing"
    COMMITTING = "committing"


@dataclass(frozen=True)
class Totals:
    """Numbers of written rows.

    Attributes:
        batches: Number of complete batches.
        rows: Number of rows, good and bad.
        bytes: Size of their data in bytes.
        bad: Number of rows that could not be decoded.
        known: Number of batches that were in the target already, because the last run was killed
            after it had written them. Their rows are not counted.
        unknown_fields: Number of fields of good rows that the schema does not name and that were
            left out.
        cut_times: Number of good rows with a time whose nanoseconds were cut to microseconds.
    """

    batches: int = 0
    rows: int = 0
    bytes: int = 0
    bad: int = 0
    known: int = 0
    unknown_fields: int = 0
    cut_times: int = 0


class BatchHandler:
    """The function of a streaming query's `foreachBatch`.

    Spark's stream thread calls it, one batch at a time, on py4j's callback thread. The job's thread
    calls the other methods. The lock guards the state that both threads use.

    Guarantees: when a call returns, the batch is in its target and its bad records are in theirs,
    once, no matter how many times the same batch is passed. The bad records come first, so a batch
    in the target is complete. After `close` has returned True, no batch is running and no batch
    starts.

    Args:
        decoding: Decoding of the messages.
        target: Target of the good rows.
        bad: Target of the rows that cannot be decoded. None: there cannot be any.
        name: Returns the name of a batch number.

    Attributes:
        written: Number of the last written batch, which Spark has not necessarily committed yet.
        failure: The error of the last batch that failed.
        refused: Whether a batch was refused, so that this class caused the end of the query.
        phase: What the job does now.
    """

    def __init__(
        self,
        decoding: Decoding,
        target: Target,
        bad: Target | None,
        *,
        name: Callable[[int], BatchName],
    ) -> None:
        self._decoding = decoding
        self._target = target
        self._bad = bad
        self._name = name
        self._lock = threading.Lock()
        self._totals = Totals()
        self._under_way: int | None = None
        self._closed = False
        self.written: int | None = None
        self.failure: BaseException | None = None
        self.refused: bool = False
        self.phase: Phase = Phase.WAITING

    @property
    def totals(self) -> Totals:
        """Sums over the complete batches of this run."""
        with self._lock:
            return self._totals

    def close(self) -> bool:
        """Start no more batches; return True if none is running."""
        with self._lock:
            self._closed = True
            return self._under_way is None

    def __call__(self, messages: DataFrame, number: int) -> None:
        """Decode a micro-batch, write it to the targets, and count its rows."""
        with self._lock:
            if self._closed:
                self.refused = True
                raise Refused(f"batch {number} was not started")
            self._under_way = number
        try:
            written = self._write(messages, self._name(number))
        except BaseException as error:
            # Spark converts the error to text; the job's thread raises the original.
            self.failure = error
            raise
        finally:
            self.phase = Phase.WAITING
            with self._lock:
                self._under_way = None
        with self._lock:
            self.written = number
            before = self._totals
            self._totals = Totals(
                before.batches + 1,
                before.rows + written.rows,
                before.bytes + written.bytes,
                before.bad + written.bad,
                before.known + written.known,
                before.unknown_fields + written.unknown_fields,
                before.cut_times + written.cut_times,
            )

    def _write(self, messages: DataFrame, batch: BatchName) -> Totals:
        spark = messages.sparkSession
        if self._target.newest(spark, batch.source) >= batch.number:
            return Totals(known=1)
        self.phase = Phase.WRITING
        counted = Observation()
        # Spark does not move a condition across the counters, so it evaluates the columns of `read`
        # once for each row, and not again in the condition.
        watched = self._decoding.read(messages, str(batch)).observe(
            counted, *_counts(self._decoding)
        )
        good = self._target.write(self._decoding.good(watched), batch)
        numbers = counted.get
        if (
            self._bad is not None
            and numbers["bad"]
            and self._bad.newest(spark, batch.source) < batch.number
        ):
            self._bad.write(self._decoding.bad(watched), batch).commit()
        self.phase = Phase.COMMITTING
        if not good.commit():
            # Another driver with the same batch was faster.
            return Totals(known=1)
        return Totals(**numbers)


def _counts(decoding: Decoding) -> list[Column]:
    """Return counters that run while the rows are written; a second pass would double the cost."""
    return [
        F.count(F.lit(1)).alias("rows"),
        F.coalesce(F.sum(F.length("data")), F.lit(0)).alias("bytes"),
        F.count_if(decoding.is_bad()).alias("bad"),
        *(
            F.coalesce(F.sum(number), F.lit(0)).alias(name)
            for name, number in decoding.counts().items()
        ),
    ]
