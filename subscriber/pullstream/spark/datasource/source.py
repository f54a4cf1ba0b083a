"""The data source `pubsub`.

This module is pickled by value, like `partition`: Spark sends it to executors, which do not use it
and need not have pullstream installed. So each method imports the modules that it needs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
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
    """Reads a subscription and writes to a topic. The options are in docs/spark.md.

    Attributes:
        files_are_shared: Whether executors run on the driver's machine and see the spool's files.
        cores: Number of cores for the tasks of a batch; 1: not known.
    """

    files_are_shared = False
    cores = 1

    @classmethod
    def name(cls) -> str:
        """Return "pubsub", the name for `format()`."""
        return "pubsub"

    def schema(self) -> StructType:
        """Return the message columns, and `subscription` if `includeSubscription` is true."""
        from .options import check_options
        from .table_options import given_to_table, with_options

        of_table = given_to_table(self.options)
        options = self.options if of_table is None else of_table
        # `load()` and CREATE TABLE call this. They do not say whether the read is a stream.
        check_options(options)
        columns = message_columns(options)
        return columns if of_table is None else with_options(columns, of_table)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch DataFrame."""
        from .options import BatchOptions
        from .spark_batch_reader import PubSubBatchReader
        from .table_options import read_options_of

        given = read_options_of(schema, self.options)
        return PubSubBatchReader(
            BatchOptions.parse(given, files_are_shared=self.files_are_shared, cores=self.cores)
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of a streaming query."""
        _find_py_files()
        from .refusing_reader import RefusingReader

        try:
            return self._stream_reader(schema)
        except Exception as error:
            return RefusingReader(error)

    def _stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        from pullstream.spark.pyspark_version import passes_start

        from .options import StreamOptions
        from .table_options import read_options_of

        given = read_options_of(schema, self.options)
        options = StreamOptions.parse(
            given, files_are_shared=self.files_are_shared, cores=self.cores
        )
        if passes_start():
            from .stream_reader import PubSubStreamReader

            return PubSubStreamReader(options)
        from .early_stream_reader import EarlyStreamReader

        return EarlyStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer that publishes the rows of a batch DataFrame."""
        from pullstream.spark.pyspark_version import SINK, require_pyspark

        require_pyspark(SINK, "the sink")
        from pullstream.spark.sink.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return the writer that publishes the rows of a streaming query."""
        _find_py_files()
        from pullstream.spark.pyspark_version import SINK, require_pyspark

        require_pyspark(SINK, "the sink")
        from pullstream.spark.sink.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)


def message_columns(options: Mapping[str, str]) -> StructType:
    """Return the message columns, and `subscription` if `includeSubscription` is true."""
    columns = (
        StructType()
        .add("message_id", StringType())
        .add("data", BinaryType())
        .add("attributes", MapType(StringType(), StringType()))
        .add("ordering_key", StringType())
        .add("publish_time", TimestampType())
        .add("delivery_attempt", IntegerType())
    )
    included = options.get("includeSubscription", "false").strip().lower() == "true"
    return columns.add("subscription", StringType()) if included else columns


def _find_py_files() -> None:
    """Add the files of spark-submit's --py-files to sys.path in the worker of a stream.

    Spark (4.3) adds paths in a folder `streaming_job`, which it never creates; the files are in the
    folder above.
    """
    for entry in map(Path, list(sys.path)):
        real = entry.parent.parent / entry.name
        if entry.parent.name == "streaming_job" and not entry.exists() and real.exists():
            sys.path.append(str(real))


# The copy in PySpark has no type annotations.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
