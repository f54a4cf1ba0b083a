"""`spark.read.format("pubsub")`: what a BatchRead has pulled, as partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from .batch_read import pull
from .options import BatchOptions
from .partition import PartitionReader
from .planning import plan


class PubSubBatchReader(DataSourceReader):
    """Made anew each time that Spark plans an action on the DataFrame; see `BatchRead`.

    Pickled, it is what an executor needs of it.
    """

    def __init__(self, options: BatchOptions) -> None:
        self._options = options

    def __reduce__(self) -> tuple[type[PartitionReader], tuple[()]]:
        return PartitionReader, ()

    def partitions(self) -> Sequence[InputPartition]:
        return plan(pull(self._options), self._options.layout)

    def read(self, partition: InputPartition) -> Any:
        raise NotImplementedError("rows are read by the PartitionReader that this is pickled as")
