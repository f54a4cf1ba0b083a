"""Processing of micro-batches in an ingestion: decode, write and count."""

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

# Time that Spark may take to return its counts, in seconds. It never returns them if the target
# already had the batch and so did not read the rows.
_COUNT_WAIT = 10


class Refused(Exception):
    """A batch was not started, because the job is ending. Spark passes it to the next run."""


@dataclass(frozen=True)
class Totals:
    """Numbers of written rows.

    Attributes:
        batches: Number of complete batches.
        rows: Number of rows, good and bad.
        bytes: Size of their data in bytes.
        bad: Number of rows that could not be decoded.
    """

    batches: int = 0
    rows: int = 0
    bytes: int = 0
    bad: int = 0


class BatchHandler:
    """The function of a streaming query's `foreachBatch`.

    Spark's stream thread calls it, one batch at a time, on py4j's callback thread. The job's thread
    calls the other methods. The lock guards the state that both threads use.

    Guarantees: when a call returns, the batch is in its target and its bad records are in theirs,
    once, no matter how many times the same batch is passed. After `close` has returned True, no
    batch is running and no batch starts.

    Args:
        decoding: Decoding of the messages.
        target: Target of the good rows.
        bad: Target of the rows that cannot be decoded. None: there cannot be any.
        derived: Columns that the target has in addition to the message columns; see `dated`.
        name: Returns a unique, permanent name for a batch number.

    Attributes:
        written: Number of the last written batch, which Spark has not necessarily committed yet.
        failure: The error of the last batch that failed.
        refused: Whether a batch was refused, so that this class caused the end of the query.
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
        self.written: int | None = None
        self.failure: BaseException | None = None
        self.refused: bool = False

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
        # If an earlier run was killed between the two writes, the target has the batch and the
        # number of bad rows is unknown.
        if self._bad is not None and (counted is None or counted["bad"]):
            self._bad.write(self._decoding.bad(read), batch)
        return counted or {"rows": 0, "bytes": 0, "bad": 0}


def _counts(is_bad: Column) -> list[Column]:
    """Return counters that run while the rows are written; a second pass would double the cost."""
    return [
        F.count(F.lit(1)).alias("rows"),
        F.coalesce(F.sum(F.length("data")), F.lit(0)).alias("bytes"),
        F.count_if(is_bad).alias("bad"),
    ]


def _counted(watch: Observation) -> dict[str, Any] | None:
    """Return the counts, or None if the rows were not read.

    `Observation.get` would wait for ever in that case.
    """
    jvm: Any = watch._jvm
    timeout = jvm.scala.concurrent.duration.Duration.apply(f"{_COUNT_WAIT}s")
    try:
        jvm.scala.concurrent.Await.ready(watch._jo.future(), timeout)  # type: ignore[union-attr]
    except Py4JJavaError:
        return None
    return watch.get
