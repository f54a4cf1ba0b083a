"""Data files of a batch: executors write them, and return a description of each.

This module is pickled by value: an executor needs pyspark and pyarrow, but not pullstream. So no
function here may refer to another module of pullstream.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import cloudpickle

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


# ---- stores --------------------------------------------------------------------------------------


class StoredFile(NamedTuple):
    """A file of a store.

    Attributes:
        path: Path relative to the store's folder.
        size: Size in bytes.
        modified: When it was written, by the clock of the store, in seconds since 1970.
    """

    path: str
    size: int
    modified: float

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


class LocalFolder:
    """A folder on this machine. Each change is durable when the method returns."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def folder(self) -> Path:
        """The folder."""
        return self._folder

    def put(self, path: str, data: bytes) -> None:
        """Create a file. Readers never see part of it."""
        self._replace(path, io.BytesIO(data))

    def create(self, path: str, data: bytes) -> bool:
        """Create a file unless it exists; return whether it was created."""
        target = self._folder / path
        # Two writers may create the file at the same time.
        temporary = target.with_name(f".{target.name}.{os.urandom(8).hex()}.tmp")
        self._write(temporary, io.BytesIO(data))
        try:
            os.link(temporary, target)
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
        _sync(target.parent)
        return True

    def get(self, path: str) -> bytes | None:
        """Return a file's content, or None if it does not exist."""
        try:
            return (self._folder / path).read_bytes()
        except FileNotFoundError:
            return None

    def size(self, path: str) -> int | None:
        """Return a file's size in bytes, or None if it does not exist."""
        try:
            return (self._folder / path).stat().st_size
        except FileNotFoundError:
            return None

    def open(self, path: str) -> pa.NativeFile:
        """Open a file to read parts of it."""
        return pa.OSFile(str(self._folder / path))

    def list(self, prefix: str = "") -> Iterator[str]:
        """Return the paths of the files below a folder, without an order."""
        for folder, _, names in os.walk(self._folder / prefix):
            inside = os.path.relpath(folder, self._folder)
            for name in names:
                yield name if inside == "." else f"{inside}/{name}"

    def files(self, prefix: str = "") -> Iterator[StoredFile]:
        """Return the files below a folder, without an order."""
        for path in self.list(prefix):
            # A file may be deleted meanwhile.
            with suppress(FileNotFoundError):
                status = (self._folder / path).stat()
                yield StoredFile(path, status.st_size, status.st_mtime)

    def modified(self, path: str) -> float:
        """Return when a file was written, by the clock of the store."""
        return (self._folder / path).stat().st_mtime

    def upload(self, path: str, source: Path) -> None:
        """Create a file from a file on this machine, without reading all of it into memory."""
        with source.open("rb") as content:
            self._replace(path, content)

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""
        (self._folder / path).unlink(missing_ok=True)

    def _replace(self, path: str, content: BinaryIO) -> None:
        target = self._folder / path
        temporary = target.with_name(f".{target.name}.tmp")
        self._write(temporary, content)
        temporary.replace(target)
        _sync(target.parent)

    def _write(self, target: Path, content: BinaryIO) -> None:
        """Write a file, and its content to the disk."""
        self._make(target.parent)
        with target.open("wb") as file:
            shutil.copyfileobj(content, file, 1 << 20)
            file.flush()
            os.fsync(file.fileno())

    def _make(self, folder: Path) -> None:
        """Create a folder and its parents, durably."""
        missing = []
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        for one in reversed(missing):
            one.mkdir(exist_ok=True)
            _sync(one.parent)


class Bucket:
    """A folder in an object store, by obstore."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        from obstore.store import from_url

        config: Any = {name: text for name, text in options.items() if "allow_http" not in name}
        client: Any = {"allow_http": "true"} if len(config) < len(options) else None
        try:
            self._store = from_url(url, config=config or None, client_options=client)
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            # obstore ends with this error, which is not an Exception, if it does not know a name.
            raise ValueError(
                f"storage has {', '.join(sorted(options))}; one of these names is unknown to the "
                f"store of {url} ({error})"
            ) from None

    def put(self, path: str, data: bytes) -> None:
        """Create a file. Readers never see part of it."""
        self._store.put(path, data)

    def create(self, path: str, data: bytes) -> bool:
        """Create a file unless it exists; return whether it was created."""
        from obstore.exceptions import AlreadyExistsError

        try:
            self._store.put(path, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    def get(self, path: str) -> bytes | None:
        """Return a file's content, or None if it does not exist."""
        try:
            return bytes(self._store.get(path).bytes())
        except FileNotFoundError:
            return None

    def open(self, path: str) -> pa.NativeFile:
        """Fetch a file to read parts of it. Few requests are faster than few bytes."""
        return pa.BufferReader(pa.py_buffer(self._store.get(path).bytes()))

    def list(self, prefix: str = "") -> Iterator[str]:
        """Return the paths of the files below a folder, without an order."""
        for some in self._store.list(prefix or None):
            for one in some:
                yield one["path"]

    def files(self, prefix: str = "") -> Iterator[StoredFile]:
        """Return the files below a folder, without an order."""
        for some in self._store.list(prefix or None):
            for one in some:
                yield StoredFile(one["path"], one["size"], one["last_modified"].timestamp())

    def modified(self, path: str) -> float:
        """Return when a file was written, by the clock of the store."""
        return self._store.head(path)["last_modified"].timestamp()

    def upload(self, path: str, source: Path) -> None:
        """Create a file from a file on this machine, without reading all of it into memory."""
        self._store.put(path, source)

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""
        with suppress(FileNotFoundError):
            self._store.delete(path)


def store_of(folder: str, options: Mapping[str, str] | None = None) -> LocalFolder | Bucket:
    """Return the store of a folder, which is a path, a `file:` URL or a URL of an object store."""
    if folder.startswith("file:"):
        from urllib.parse import unquote, urlparse

        return LocalFolder(Path(unquote(urlparse(folder).path)))
    if ":" in folder.partition("/")[0]:
        return Bucket(folder, options or {})
    return LocalFolder(Path(folder))


def _sync(folder: Path) -> None:
    """Sync a folder: a new file name is durable only after its folder is synced."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# The copy in PySpark has no type annotations.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
