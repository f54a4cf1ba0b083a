"""The data source `pubsub`.

This module is pickled by value, like `partition`: Spark sends it to executors, which do not use it
and need not have pullstream installed. So each method imports the modules that it needs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )


class PubSubDataSource(DataSource):
    """Reads a subscription and writes to a topic. The options are in docs/spark.md."""

    files_are_shared = False

    @classmethod
    def name(cls) -> str:
        """Return "pubsub", the name for `format()`."""
        return "pubsub"

    def schema(self) -> StructType:
        """Return the message columns, and `subscription` if `includeSubscription` is true."""
        from .options import check_names

        # Errors that apply to streams and batch reads alike are raised by `load()` already.
        check_names(self.options)
        columns = (
            StructType()
            .add("message_id", StringType())
            .add("data", BinaryType())
            .add("attributes", MapType(StringType(), StringType()))
            .add("ordering_key", StringType())
            .add("publish_time", TimestampType())
            .add("delivery_attempt", IntegerType())
        )
        included = self.options.get("includeSubscription", "false").strip().lower() == "true"
        return columns.add("subscription", StringType()) if included else columns

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch DataFrame."""
        from .options import BatchOptions
        from .spark_batch_reader import PubSubBatchReader

        options = BatchOptions.parse(self.options, files_are_shared=self.files_are_shared)
        return PubSubBatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of a streaming query."""
        _find_py_files()
        from pullstream.spark.pyspark_version import STREAMS, require_pyspark

        require_pyspark(STREAMS, "readStream.format('pubsub')")
        from .options import StreamOptions
        from .stream_reader import PubSubStreamReader

        options = StreamOptions.parse(self.options, files_are_shared=self.files_are_shared)
        return PubSubStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer that publishes the rows of a batch DataFrame."""
        from pullstream.spark.sink.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return the writer that publishes the rows of a streaming query."""
        _find_py_files()
        from pullstream.spark.sink.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)


def _find_py_files() -> None:
    """Add the files of spark-submit's --py-files to sys.path in the worker of a stream.

    Spark (4.3) adds paths in a folder `streaming_job`, which it never creates; the files are in the
    folder above.
    """
    for entry in map(Path, list(sys.path)):
        real = entry.parent.parent / entry.name
        if entry.parent.name == "streaming_job" and not entry.exists() and real.exists():
            sys.path.append(str(real))


class LocalPubSubDataSource(PubSubDataSource):
    """The data source if executors run on the driver's machine and see the spool's files."""

    files_are_shared = True


# The copy in PySpark has no type annotations.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
