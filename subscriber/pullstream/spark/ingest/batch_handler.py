"""Processing of micro-batches in an ingestion: decode, write and count."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from pullstream.spark.tables.batch import BatchName

from .decoding import Decoding
from .report import Phase, Totals
from .targets import Target

if TYPE_CHECKING:
    from pyspark.sql import Column


# Number of bad rows of a task whose reasons are counted, and of rows whose unknown fields are. A
# pass over all of them would double the cost of a bad batch.
_REASONS = 1000
# Unknown fields that are kept, of a row and of the job, and the length of their names.
_NAMES = 20
_NAME_LENGTH = 100
_EARLY = "_early"


class Refused(Exception):
    """A batch was not started, because the job is ending. Spark passes it to the next run."""


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
        offset: The source's offset at the end of that batch; 0 before it.
        failure: The error of the last batch that failed.
        refused: Whether a batch was refused, so that this class caused the end of the query.
        phase: The present activity of the job.
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
        self._reasons: Counter[str] = Counter()
        self._unknown: Counter[str] = Counter()
        self._under_way: int | None = None
        self._closed = False
        self.written: int | None = None
        self.offset: int = 0
        self.failure: BaseException | None = None
        self.refused: bool = False
        self.phase: Phase = Phase.WAITING

    @property
    def totals(self) -> Totals:
        """Sums over the complete batches of this run."""
        with self._lock:
            return self._totals

    @property
    def reasons(self) -> Mapping[str, int]:
        """Number of bad rows of this run by reason, of the first 1,000 of each task."""
        with self._lock:
            return Counter(self._reasons)

    @property
    def unknown(self) -> Mapping[str, int]:
        """Number of good rows by a field outside the schema, of the first 1,000 of each task.

        Only the most frequent fields are kept.
        """
        with self._lock:
            return Counter(self._unknown)

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
            name = self._name(number)
            self._count(number, name, self._write(messages, name))
        except BaseException as error:
            # Spark converts the error to text; the job's thread raises the original.
            self.failure = error
            raise
        finally:
            self.phase = Phase.WAITING
            with self._lock:
                self._under_way = None

    def _count(self, number: int, name: BatchName, written: Totals) -> None:
        with self._lock:
            self.written = number
            self.offset = name.number
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
        read = self._decoding.read(messages, str(batch)).withColumn(_EARLY, _is_early())
        watched = read.observe(counted, *_counts(self._decoding))
        good = self._target.write(self._decoding.good(watched), batch)
        numbers = counted.get
        if (
            self._bad is not None
            and numbers["bad"]
            and self._bad.newest(spark, batch.source) < batch.number
        ):
            self._write_bad(self._bad, self._decoding.bad(watched), batch)
        self.phase = Phase.COMMITTING
        if not good.commit():
            # Another driver with the same batch was faster.
            return Totals(known=1)
        names = Counter(name for row in json.loads(numbers.pop("unknown")) for name in row)
        with self._lock:
            self._unknown = Counter(dict((self._unknown + names).most_common(_NAMES)))
        return Totals(**numbers)

    def _write_bad(self, target: Target, rows: DataFrame, batch: BatchName) -> None:
        seen = Observation()
        reasons = F.collect_list(F.when(F.col(_EARLY), F.col("reason")))
        told = F.to_json(reasons).alias("reasons")
        watched = rows.withColumn(_EARLY, _is_early()).observe(seen, told).drop(_EARLY)
        target.write(watched, batch).commit()
        with self._lock:
            self._reasons.update(json.loads(seen.get["reasons"]))


def _is_early() -> Column:
    """Return whether a row is one of the first 1,000 of its task."""
    # The number of a row in its task: the upper bits of the id are the task's.
    return F.monotonically_increasing_id() % (1 << 33) < _REASONS


def _names(unknown: Column | None) -> Column:
    """Return the list of the unknown fields of early rows, a list for each row with some.

    It is JSON, because PySpark 4.0 does not convert a list.
    """
    if unknown is None:
        return F.lit("[]")
    few = F.transform(F.slice(unknown, 1, _NAMES), lambda name: F.substring(name, 1, _NAME_LENGTH))
    return F.to_json(F.collect_list(F.when(F.col(_EARLY) & (F.array_size(unknown) > 0), few)))


def _counts(decoding: Decoding) -> list[Column]:
    """Return counters that run while the rows are written; a second pass would double the cost."""
    return [
        F.count(F.lit(1)).alias("rows"),
        F.coalesce(F.sum(F.length("data")), F.lit(0)).alias("bytes"),
        F.count_if(decoding.is_bad()).alias("bad"),
        _names(decoding.unknown()).alias("unknown"),
        *(
            F.coalesce(F.sum(number), F.lit(0)).alias(name)
            for name, number in decoding.counts().items()
        ),
    ]
