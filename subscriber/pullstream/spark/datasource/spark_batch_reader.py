"""`spark.read.format("pubsub")`: the messages of a BatchRead as partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from .batch_journal import pull
from .options import BatchOptions
from .partition import PartitionReader
from .planning import plan


class PubSubBatchReader(DataSourceReader):
    """Created for each action that Spark plans on the DataFrame; see `BatchRead`.

    It is pickled as the part that an executor needs.
    """

    def __init__(self, options: BatchOptions) -> None:
        self._options = options

    def __reduce__(self) -> tuple[type[PartitionReader], tuple[()]]:
        return PartitionReader, ()

    def partitions(self) -> Sequence[InputPartition]:
        """Return partitions of the last unacknowledged read, or else of newly pulled messages."""
        return plan(pull(self._options), self._options.layout)

    def read(self, partition: InputPartition) -> Any:
        """Raise NotImplementedError: executors have a PartitionReader."""
        raise NotImplementedError("rows are read by PartitionReader, the pickled form of this")
