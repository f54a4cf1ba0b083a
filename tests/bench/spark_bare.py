"""The least that a Python source of Spark can do: rows that are already in Arrow files.

No broker, no receiver, no plans: its cost is that of Spark's interface for sources in Python. The
module is pickled by value, so Spark's workers need not find it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pullstream.spark.datasource.source import message_columns

# As many as our source has for a batch of these rows on two cores.
TASKS = 2

Offset = dict[str, int]


class BareSource(DataSource):
    """Each batch has the rows of the file `path`, until there are `batches`."""

    @classmethod
    def name(cls) -> str:
        return "bare"

    def schema(self) -> StructType:
        return message_columns({})

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return BareReader(self.options["path"], int(self.options["batches"]))


class BareReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, path: str, batches: int) -> None:
        self._path = path
        self._batches = batches

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(1)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Do nothing: the number of batches is known."""

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        return {"batch": min(start["batch"] + 1, self._batches)}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        count = TASKS if start != end else 0
        return [InputPartition(task) for task in range(count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(self._path) as file, pa.ipc.open_file(file) as reader:
            for number in range(partition.value, reader.num_record_batches, TASKS):
                yield reader.get_batch(number)

    def commit(self, end: Offset) -> None:
        """Do nothing: there is nothing to acknowledge."""

    def stop(self) -> None:
        """Do nothing: nothing is open."""


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
