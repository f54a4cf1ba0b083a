"""The source as it is, with a note of each call that Spark makes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from subscriber.spark.options import StreamOptions
from subscriber.spark.source import LocalPubSubDataSource
from subscriber.spark.stream_reader import Offset, PubSubStreamReader

from . import engine
from .engine import call

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class RecordedReader(PubSubStreamReader):
    """Writes what is called, and with which offsets, into a file beside the spool; and at each
    `latestOffset`, into another, whether its start is what Spark has committed."""

    def __init__(self, options: StreamOptions) -> None:
        super().__init__(options)
        self._spool = options.settings.spool_dir

    def _note(self, name: str, *offsets: Offset) -> None:
        with calls_of(self._spool).open("a") as file:
            file.write(f"{call(name, *offsets)}\n")

    def initialOffset(self) -> Offset:  # noqa: N802
        self._note("initialOffset")
        return super().initialOffset()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        self._note("getDefaultReadLimit")
        return super().getDefaultReadLimit()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._note("prepareForTriggerAvailableNow")
        super().prepareForTriggerAvailableNow()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        self._note("latestOffset", start)
        with proofs_of(self._spool).open("a") as file:
            file.write(f"{start == committed(self._spool.with_name('checkpoint'))}\n")
        return super().latestOffset(start, limit)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        self._note("partitions", start, end)
        return super().partitions(start, end)

    def commit(self, end: Offset) -> None:
        self._note("commit", end)
        super().commit(end)

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
        self._note("reportLatestOffset")
        return super().reportLatestOffset()


class RecordedSource(LocalPubSubDataSource):
    """`format("recorded")`."""

    @classmethod
    def name(cls) -> str:
        return "recorded"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return RecordedReader(StreamOptions.of(self.options, files_are_shared=True))


def calls_of(spool: Path) -> Path:
    """Where the calls of a query are noted."""
    return Path(f"{spool}.calls")


def proofs_of(spool: Path) -> Path:
    """Where it is noted of each `latestOffset` whether Spark had committed its start."""
    return Path(f"{spool}.proofs")


def committed(checkpoint: Path) -> Offset:
    """The offset at the end of the last batch that is in the commit log; at first, the initial."""
    batches = [int(path.name) for path in (checkpoint / "commits").glob("*") if path.name.isdigit()]
    if not batches:
        return {"seq": 0}
    lines = (checkpoint / "offsets" / str(max(batches))).read_text().splitlines()
    offset: Offset = json.loads(lines[-1])
    return offset


def take(path: Path) -> list[str]:
    """The lines since one looked last."""
    lines = path.read_text().splitlines()
    path.unlink()
    return lines


# Spark's workers cannot import the tests. The copy that comes with PySpark is without annotations.
for _module in (engine, sys.modules[__name__]):
    cloudpickle.register_pickle_by_value(_module)  # type: ignore[no-untyped-call]
