"""`spark.read.format("pubsub")`: the messages of a BatchRead as partitions."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.datasource import DataSourceReader, InputPartition

from .batch_pull import BatchSpool
from .options import BatchOptions
from .partition import PartitionReader
from .planning import plan, planned_rows


class PubSubBatchReader(PartitionReader, DataSourceReader):
    """Created for each action that Spark plans on the DataFrame; see `BatchRead`."""

    def __init__(self, options: BatchOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return partitions of the last unacknowledged read, or else of newly pulled messages."""
        options = self._options
        spool = BatchSpool(options.settings)
        pulled = spool.pull(options.read)
        if pulled is None:
            return plan([], options.layout)
        return plan(planned_rows(options.settings, pulled), options.layout)
