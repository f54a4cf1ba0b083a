"""The source as it is, with a note of each call that Spark makes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from subscriber.spark.options import StreamOptions
from subscriber.spark.source import LocalPubSubDataSource
from subscriber.spark.stream_reader import Offset, PubSubStreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class RecordedReader(PubSubStreamReader):
    """Writes the names of the methods that are called into a file beside the spool."""

    def __init__(self, options: StreamOptions) -> None:
        super().__init__(options)
        self._calls = calls_of(options.settings.spool_dir)

    def _note(self, name: str) -> None:
        with self._calls.open("a") as file:
            file.write(f"{name}\n")

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
        self._note("latestOffset")
        return super().latestOffset(start, limit)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        self._note("partitions")
        return super().partitions(start, end)

    def commit(self, end: Offset) -> None:
        self._note("commit")
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


def take_calls(spool: Path) -> list[str]:
    """The calls since one looked last."""
    path = calls_of(spool)
    calls = path.read_text().split()
    path.unlink()
    return calls


# Spark's workers cannot import the tests. The copy that comes with PySpark is without annotations.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
