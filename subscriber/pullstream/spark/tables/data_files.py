"""Data files of a batch: executors write them, and return a description of each.

This module is pickled by value: an executor needs pyspark and pyarrow, but not pullstream. So no
function here may refer to another module of pullstream, except `stores`.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import cloudpickle

from pullstream.spark import stores
from pullstream.spark.stores import store_of

# Hive's name for the folder of rows without a value, which all readers know.
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"

# Most rows of a file. A task has fewer, unless the user's options ask for large tasks.
_MAX_ROWS = 1_000_000

# What an executor returns for each file.
DESCRIPTION = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("partition", pa.string(), nullable=False),
        pa.field("footer", pa.binary(), nullable=False),
        pa.field("attempt", pa.int32(), nullable=False),
    ]
)
DESCRIPTION_DDL = (
    "path STRING NOT NULL, rows BIGINT NOT NULL, size BIGINT NOT NULL, "
    "partition STRING NOT NULL, footer BINARY NOT NULL, attempt INT NOT NULL"
)


class PartitionField(NamedTuple):
    """One value by which rows are divided into files.

    Attributes:
        transform: "identity", "date" (the identity of a date), "day", "hour" or "bucket".
        column: The column of the rows.
        buckets: Number of buckets; 0 for other transforms.
        name: Name of the value, which is a folder's name and may be a column's.
    """

    transform: str
    column: str
    buckets: int
    name: str


@dataclass(frozen=True)
class WrittenFile:
    """A data file that a task has written.

    Attributes:
        path: Path relative to the table's folder.
        rows: Number of rows.
        size: Size in bytes.
        partition: The partition values in the order of the fields: None, a bool, an int or a str.
            A day is the number of days since 1970, and an hour the number of hours.
        footer: Parquet's footer, with the statistics of the columns. Empty for other formats.
        attempt: Number of the task's attempts before this one. They may have left files.
    """

    path: str
    rows: int
    size: int
    partition: tuple[Any, ...]
    footer: bytes
    attempt: int = 0

    @property
    def metadata(self) -> pq.FileMetaData:
        """Parquet's footer."""
        return pq.read_metadata(io.BytesIO(self.footer))

    def described(self) -> dict[str, Any]:
        """Return the row that an executor returns; see DESCRIPTION."""
        return {
            "path": self.path,
            "rows": self.rows,
            "size": self.size,
            "partition": json.dumps(self.partition),
            "footer": self.footer,
            "attempt": self.attempt,
        }


@dataclass(frozen=True)
class FilesToWrite:
    """Where and how the tasks of a batch write its rows. Sent to the executors.

    Attributes:
        folder: Path or URL of the table's folder.
        prefix: Folder inside it, ending in "/"; or empty.
        name: Beginning of each file's name: the names of the batch and of the run.
        schema: Arrow schema of the rows, serialized. Rows are cast to it.
        partition_by: The values by which rows are divided.
        keeps_columns: Whether files contain the columns by which they are divided. Readers of
            folders named `column=value` take these from the names.
        is_json: Whether files have a JSON text in each line, and rows have this text alone, after
            the columns by which they are divided.
        options: Settings of the object store; see obstore's `from_url`.
    """

    folder: str
    prefix: str
    name: str
    schema: bytes
    partition_by: tuple[PartitionField, ...] = ()
    keeps_columns: bool = False
    is_json: bool = False
    options: Mapping[str, str] | None = field(default=None, repr=False)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of one task, and return a row for each file. For `mapInArrow`."""
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = context.attemptNumber() if context is not None else 0
        written = [replace(file, attempt=attempt) for file in self.write(batches, attempt_name())]
        yield pa.RecordBatch.from_pylist([file.described() for file in written], DESCRIPTION)

    def write(self, batches: Iterable[pa.RecordBatch], task: str) -> list[WrittenFile]:
        """Write rows, each partition to a file of its own, and return the files.

        Args:
            batches: The rows.
            task: Name of the attempt of the task, which no other attempt has.
        """
        store = store_of(self.folder, self.options)
        schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
        files: list[WrittenFile] = []
        for rows in _chunks(batches):
            table = _cast(rows, schema)
            for partition, part in split(table, self.partition_by):
                path = f"{self.prefix}{self._folder_of(partition)}part-{self.name}-{task}"
                # A task of very many rows writes several files.
                path += f"-{len(files)}." + ("json" if self.is_json else "parquet")
                data, footer = self._encode(part)
                store.put(path, data)
                files.append(WrittenFile(path, part.num_rows, len(data), partition, footer))
        return files

    def _folder_of(self, partition: Sequence[Any]) -> str:
        return "".join(
            f"{quote(field.name, safe='')}={folder_name(text_of(field, value))}/"
            for field, value in zip(self.partition_by, partition, strict=True)
        )

    def _encode(self, part: pa.Table) -> tuple[bytes, bytes]:
        if not self.keeps_columns:
            own = {field.name for field in self.partition_by}
            part = part.drop_columns([name for name in part.column_names if name in own])
        if self.is_json:
            lines = part.column(part.num_columns - 1).to_pylist()
            return "".join(f"{line}\n" for line in lines).encode(), b""
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(
            sink, part.schema, compression="snappy", store_schema=False
        ) as writer:
            writer.write_table(part, row_group_size=_MAX_ROWS)
        footer = pa.BufferOutputStream()
        data = sink.getvalue()
        pq.read_metadata(pa.BufferReader(data)).write_metadata_file(footer)
        return data.to_pybytes(), footer.getvalue().to_pybytes()


def attempt_name() -> str:
    """Return the name of the attempt of the task that runs here, which no other attempt has."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return "00000-0"
    return f"{context.partitionId():05}-{context.taskAttemptId()}"


# ---- division ------------------------------------------------------------------------------------


def split(
    table: pa.Table, fields: Sequence[PartitionField]
) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """Divide rows by their partition values, in one pass. Rows of a part keep their order."""
    if not fields:
        if table.num_rows:
            yield (), table
        return
    encoded = [_values(table, field).dictionary_encode("encode") for field in fields]
    codes = pa.repeat(pa.scalar(0, pa.int64()), table.num_rows)
    for column in encoded:
        codes = pc.add(pc.multiply(codes, len(column.dictionary)), column.indices.cast("int64"))
    # A stable sort, so that rows of an ordering key stay in order.
    order = pc.sort_indices(codes)
    table, codes = table.take(order), codes.take(order)
    runs = pc.run_end_encode(codes, run_end_type=pa.int64())
    begin = 0
    for end, code in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
        values: list[Any] = []
        for column in reversed(encoded):
            code, index = divmod(code, len(column.dictionary))
            values.insert(0, column.dictionary[index].as_py())
        yield tuple(values), table.slice(begin, end - begin)
        begin = end


def _values(table: pa.Table, field: PartitionField) -> pa.Array:
    """Return the partition value of each row."""
    column = table.column(field.column).combine_chunks()
    match field.transform:
        case "day":
            if pa.types.is_date(column.type):
                return column.cast(pa.int32())
            return _whole_hours(column, 24)
        case "hour":
            return _whole_hours(column, 1)
        case "bucket":
            return _buckets(column, field.buckets)
        case "date":
            return column.cast(pa.int32())
        case _ if pa.types.is_large_string(column.type):
            return column.cast(pa.string())
        case _:
            return column


def _whole_hours(column: pa.Array, hours: int) -> pa.Array:
    """Return how many times this number of hours has passed since 1970, rounded down."""
    time = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    unit = pa.scalar(hours * 3_600_000_000, pa.int64())
    # Arrow's division of integers rounds towards zero.
    whole = pc.divide(time, unit)
    is_less = pc.less(pc.subtract(time, pc.multiply(whole, unit)), 0)
    return pc.subtract(whole, is_less.cast(pa.int64())).cast(pa.int32())


def _buckets(column: pa.Array, buckets: int) -> pa.Array:
    """Return Iceberg's bucket of each value."""
    from pyiceberg.transforms import BucketTransform
    from pyiceberg.types import IntegerType, LongType, StringType

    encoded = column.dictionary_encode("encode")
    kinds = {pa.int32(): IntegerType(), pa.int64(): LongType()}
    bucket: Callable[[Any], int | None] = BucketTransform(buckets).transform(
        kinds.get(column.type, StringType())
    )
    found = pa.array([bucket(value) for value in encoded.dictionary.to_pylist()], pa.int32())
    return found.take(encoded.indices)


def text_of(field: PartitionField, value: Any) -> str | None:
    """Return a partition value as the text that folders and Delta's log have; None for null."""
    if value is None or value == "":
        # Neither Hive's folders nor Delta can tell an empty text from null.
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if field.transform in ("day", "date"):
        return _day(value)
    if field.transform == "hour":
        return f"{_day(value // 24)}-{value % 24:02}"
    return str(value)


def _day(days: int) -> str:
    text: str = pa.scalar(days, pa.int32()).cast(pa.date32()).as_py().isoformat()
    return text


def folder_name(text: str | None) -> str:
    """Return the folder's name for a partition value."""
    return NULL_FOLDER if text is None else quote(text, safe="")


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    gathered: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        gathered.append(batch)
        rows += batch.num_rows
        if rows >= _MAX_ROWS:
            yield pa.Table.from_batches(gathered)
            gathered, rows = [], 0
    if rows:
        yield pa.Table.from_batches(gathered)


def _cast(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return rows.select(schema.names).cast(schema)


for _module in (stores, sys.modules[__name__]):
    # The copy in PySpark has no type annotations.
    cloudpickle.register_pickle_by_value(_module)  # type: ignore[no-untyped-call]
