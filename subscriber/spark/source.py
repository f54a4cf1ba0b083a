"""The data source `pubsub`.

Pickled by value, as `partition` is: Spark sends it to executors, which do not use it and may have
nothing of ours. So what a method needs it imports itself.
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
    """Reads a subscription and writes to a topic. docs/spark.md has the options."""

    files_are_shared = False

    @classmethod
    def name(cls) -> str:
        return "pubsub"

    def schema(self) -> StructType:
        from .options import check_names

        # What is wrong for a stream and for a batch read alike is told by `load()` already.
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
        from .batch_reader import PubSubBatchReader
        from .options import BatchOptions

        options = BatchOptions.of(self.options, files_are_shared=self.files_are_shared)
        return PubSubBatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        _find_py_files()
        from .options import StreamOptions
        from .stream_reader import PubSubStreamReader

        options = StreamOptions.of(self.options, files_are_shared=self.files_are_shared)
        return PubSubStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from .sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        _find_py_files()
        from .sink import stream_writer

        return stream_writer(self.options, schema, overwrite)


def _find_py_files() -> None:
    """Make what spark-submit was given as --py-files known here, in the worker of a stream.

    Spark (4.3) puts paths below `streaming_job` on sys.path there, a folder that it never makes;
    the files are in the one above.
    """
    for entry in map(Path, list(sys.path)):
        real = entry.parent.parent / entry.name
        if entry.parent.name == "streaming_job" and not entry.exists() and real.exists():
            sys.path.append(str(real))


class LocalPubSubDataSource(PubSubDataSource):
    """The same where executors run on the driver's machine, and see the spool's files."""

    files_are_shared = True


# The copy that comes with PySpark is without annotations.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
