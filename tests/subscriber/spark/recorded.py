"""The unchanged source, with a record of each call that Spark makes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from pullstream.spark.datasource.options import StreamOptions
from pullstream.spark.datasource.source import PubSubDataSource
from pullstream.spark.datasource.source_reader import Offset
from pullstream.spark.datasource.stream_reader import PubSubStreamReader

from . import engine
from .engine import call

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class RecordedReader(PubSubStreamReader):
    """Records each call with its offsets in a file next to the spool.

    At each `latestOffset`, another file records whether its start is the offset that Spark has
    committed.
    """

    def __init__(self, options: StreamOptions) -> None:
        super().__init__(options)
        self._spool = Path(options.settings.spool_dir)

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


class RecordedSource(PubSubDataSource):
    """The data source of `format("recorded")`."""

    @classmethod
    def name(cls) -> str:
        return "recorded"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return RecordedReader(StreamOptions.parse(self.options, files_are_shared=True))


def calls_of(spool: Path) -> Path:
    """Return the file with the calls of a query."""
    return Path(f"{spool}.calls")


def proofs_of(spool: Path) -> Path:
    """Return the file that records whether Spark had committed the start of each `latestOffset`."""
    return Path(f"{spool}.proofs")


def committed(checkpoint: Path) -> Offset:
    """Return the end offset of the last batch in the commit log, or at first the initial offset."""
    batches = [int(path.name) for path in (checkpoint / "commits").glob("*") if path.name.isdigit()]
    if not batches:
        return {"plan": 0, "chain": ""}
    lines = (checkpoint / "offsets" / str(max(batches))).read_text().splitlines()
    offset: Offset = json.loads(lines[-1])
    return offset


def take(path: Path) -> list[str]:
    """Return and remove the lines since the last call."""
    lines = path.read_text().splitlines()
    path.unlink()
    return lines


# Spark's workers cannot import the tests. PySpark's own copy has no annotations.
for _module in (engine, sys.modules[__name__]):
    cloudpickle.register_pickle_by_value(_module)  # type: ignore[no-untyped-call]
