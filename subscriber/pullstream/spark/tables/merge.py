"""Changes of rows by a key: which of two changes is newer, and the files without replaced rows.

A table that takes changes has one row for each key: its newest change. A deleted key keeps its row,
so that an older change that comes late does not revive it.

This module is pickled by value, as `data_files` is: an executor needs pyspark and pyarrow, but not
pullstream.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import cloudpickle

from pullstream.spark.stores import store_of

from .data_files import DESCRIPTION, FilesToWrite, attempt_name

# The column that is true in the row of a deleted key.
DELETED = "_deleted"

# The column with the publish time of a row's message.
PUBLISHED = "pubsub_publish_time"

# Rows of a file that are in memory at once, while others are written.
_ROWS_AT_ONCE = 65_536

# The columns that an executor returns for the files of a task.
RESULT = pa.schema(
    [
        pa.field("replaced", pa.list_(pa.string()), nullable=False),
        pa.field("late", pa.list_(pa.int64()), nullable=False),
        pa.field("written", pa.list_(pa.struct(list(DESCRIPTION))), nullable=False),
    ]
)
RESULT_DDL = (
    "replaced ARRAY<STRING> NOT NULL, late ARRAY<BIGINT> NOT NULL, written ARRAY<STRUCT<"
    "path: STRING, rows: BIGINT, size: BIGINT, partition: STRING, footer: BINARY, attempt: INT>> "
    "NOT NULL"
)


class MergeColumns(NamedTuple):
    """The columns by which changes are matched and compared.

    Attributes:
        keys: The columns of the key. Changes have no null in them.
        order: The columns that decide which of two changes is newer, the first one first. The
            last two are the publish time and the message id, so no two changes are equal.
        texts: Those of `order` that are text.
    """

    keys: tuple[str, ...]
    order: tuple[str, ...]
    texts: frozenset[str]

    @property
    def all(self) -> list[str]:
        """The columns of the key and of the order."""
        return list(dict.fromkeys((*self.keys, *self.order)))


def compared(rows: pa.Table, changes: pa.Table, columns: MergeColumns) -> tuple[pa.Array, pa.Array]:
    """Compare rows of a table with changes.

    Args:
        rows: Rows with the columns of `columns`.
        changes: Changes with the same columns and types, one for each key.
        columns: The columns.

    Returns:
        The indices of the rows that are older than the change of their key, and the indices of the
        changes that are not newer than a row of their key.
    """
    # Other names: columns of a table may have any name.
    names = [f"key{number}" for number in range(len(columns.keys))]
    left, right = (
        pa.table(dict(zip(names, table.select(columns.keys).columns, strict=True))).append_column(
            name, indices(table.num_rows)
        )
        for table, name in ((rows, "row"), (changes, "change"))
    )
    pairs = left.join(right, names, join_type="inner")
    row, change = (pairs.column(name).combine_chunks() for name in ("row", "change"))
    newer = _are_newer(_order(changes.take(change), columns), _order(rows.take(row), columns))
    newer = newer.combine_chunks()
    return row.filter(newer), change.filter(pc.invert(newer))


def _order(table: pa.Table, columns: MergeColumns) -> list[pa.ChunkedArray]:
    """Return the values to compare. Message ids are digits, so the longer one is greater."""
    *first, last = (table.column(name) for name in columns.order)
    return [*first, pc.utf8_length(last), last]


def _are_newer(changes: list[pa.ChunkedArray], rows: list[pa.ChunkedArray]) -> pa.ChunkedArray:
    """Return whether each change is newer than its row. Null is older than any value."""
    newer: Any = pa.scalar(False)
    for change, row in reversed(list(zip(changes, rows, strict=True))):
        both_null = pc.and_(pc.is_null(change), pc.is_null(row))
        above = pc.or_(
            pc.fill_null(pc.greater(change, row), False),
            pc.and_(pc.is_valid(change), pc.is_null(row)),
        )
        same = pc.or_(pc.fill_null(pc.equal(change, row), False), both_null)
        newer = pc.or_(above, pc.and_(same, newer))
    return newer


def indices(number: int) -> pa.Array:
    """Return the numbers from 0 to this one."""
    return pa.array(range(number), pa.int64())


def packed(table: pa.Table) -> bytes:
    """Return a table as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def unpacked(content: bytes) -> pa.Table:
    """Return the table of `packed`."""
    return pa.ipc.open_stream(pa.py_buffer(content)).read_all()


# ---- executors -----------------------------------------------------------------------------------


class FileToRead(NamedTuple):
    """A data file of a table.

    Attributes:
        path: Path relative to the table's folder, or a URL.
        values: The values of columns that are not in the file, as texts.
    """

    path: str
    values: Mapping[str, str | None]


@dataclass(frozen=True)
class RewrittenFiles:
    """Writes the rows of data files again, except replaced ones. For `mapInArrow`.

    The input has one column, with the numbers of lists of files. The files of a list are written
    together, except those from which no row is replaced: they stay.

    Attributes:
        to_write: How the rows are written, with all columns of the table.
        lists: The lists of files.
        columns: The columns by which changes are matched and compared.
        changes: These columns of the batch's changes; see `packed`.
    """

    to_write: FilesToWrite
    lists: Sequence[Sequence[FileToRead]]
    columns: MergeColumns
    changes: bytes

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the files of each list again, and return a row for each list."""
        schema = pa.ipc.read_schema(pa.py_buffer(self.to_write.schema))
        changes = conformed(unpacked(self.changes), _only(schema, self.columns.all), {})
        for number in (one for batch in batches for one in batch.column(0).to_pylist()):
            replaced: list[str] = []
            late: list[int] = []
            rows = self._kept(self.lists[number], schema, changes, replaced, late)
            written = self.to_write.write(rows, f"{attempt_name()}-{number}")
            yield pa.RecordBatch.from_pylist(
                [
                    {
                        "replaced": replaced,
                        "late": late,
                        "written": [file.described() for file in written],
                    }
                ],
                schema=RESULT,
            )

    def _kept(
        self,
        files: Sequence[FileToRead],
        schema: pa.Schema,
        changes: pa.Table,
        replaced: list[str],
        late: list[int],
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows that stay, and note replaced files and changes that came late."""
        for file in files:
            with _opened(self.to_write, file.path) as source:
                parquet = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
                reader = _Reader(parquet, schema, self._values(file.values, schema))
                rows = reader.read(self.columns.all)
                older, not_newer = compared(rows, changes, self.columns)
                late.extend(not_newer.to_pylist())
                if not len(older):
                    continue
                replaced.append(file.path)
                stays = pc.invert(pc.is_in(indices(rows.num_rows), value_set=older))
                begin = 0
                for part in reader.parts():
                    kept = part.filter(stays.slice(begin, part.num_rows))
                    begin += part.num_rows
                    yield from kept.to_batches()

    def _values(self, values: Mapping[str, str | None], schema: pa.Schema) -> dict[str, str | None]:
        """Return the values, with empty texts in a key, which partitions store as null."""
        texts = {name for name in self.columns.keys if pa.types.is_string(schema.field(name).type)}
        return {
            name: "" if value is None and name in texts else value for name, value in values.items()
        }


@dataclass(frozen=True)
class NewRows:
    """Writes the changes that became rows, so not the late ones. For `mapInArrow`.

    Attributes:
        to_write: How the rows are written.
        keys: The columns of the key.
        late: The keys of the changes that came late; see `packed`.
    """

    to_write: FilesToWrite
    keys: tuple[str, ...]
    late: bytes

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of one task, and return a row for each file."""
        schema = pa.ipc.read_schema(pa.py_buffer(self.to_write.schema))
        names = [f"key{number}" for number in range(len(self.keys))]
        late = conformed(unpacked(self.late), _only(schema, self.keys), {}).rename_columns(names)

        def rows() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                table = conformed(pa.Table.from_batches([batch]), schema, {})
                if not late.num_rows:
                    yield from table.to_batches()
                    continue
                own = table.select(self.keys).rename_columns(names)
                numbered = own.append_column("row", indices(table.num_rows))
                left = numbered.join(late, names, join_type="left anti").column("row")
                yield from table.take(left.take(pc.sort_indices(left))).to_batches()

        return self.to_write(rows())


class _Reader:
    """Reads a data file with the columns that the table has now."""

    def __init__(
        self, parquet: pq.ParquetFile, schema: pa.Schema, values: Mapping[str, str | None]
    ) -> None:
        self._parquet = parquet
        self._schema = schema
        self._values = values

    def read(self, names: Sequence[str]) -> pa.Table:
        """Return some columns of all rows."""
        schema = _only(self._schema, names)
        return self._conformed(self._parquet.read(self._in_file(schema)), schema)

    def parts(self) -> Iterator[pa.Table]:
        """Return all columns of the rows, in parts."""
        columns = self._in_file(self._schema)
        for batch in self._parquet.iter_batches(_ROWS_AT_ONCE, columns=columns):
            yield self._conformed(pa.Table.from_batches([batch]), self._schema)

    def _in_file(self, schema: pa.Schema) -> list[str]:
        found = (found_field(self._parquet.schema_arrow, field) for field in schema)
        return [field.name for field in found if field is not None]

    def _conformed(self, table: pa.Table, schema: pa.Schema) -> pa.Table:
        return conformed(table, schema, self._values)


def conformed(table: pa.Table, schema: pa.Schema, values: Mapping[str, str | None]) -> pa.Table:
    """Return a table with these columns and types.

    Args:
        table: The table. It may have other columns, and lack some.
        schema: The columns. A column with a field id is found by it, where the table has ids.
        values: The values of columns that are not in the table, as texts.
    """
    columns = []
    for field in schema:
        found = found_field(table.schema, field)
        if field.name in values:
            value = pa.scalar(values[field.name], pa.string()).cast(field.type)
            columns.append(pa.repeat(value, table.num_rows))
        elif found is None:
            columns.append(pa.nulls(table.num_rows, field.type))
        else:
            columns.append(table.column(found.name).cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)


_FIELD_ID = b"PARQUET:field_id"


def found_field(table: pa.Schema, field: pa.Field) -> pa.Field | None:
    """Return the column of a file that a column of the table is stored in, if there is one.

    Raises:
        ValueError: A part of the column has another name in the file.
    """
    number = (field.metadata or {}).get(_FIELD_ID)
    by_id = {one.metadata[_FIELD_ID]: one for one in table if _FIELD_ID in (one.metadata or {})}
    if number is None or not by_id:
        return table.field(field.name) if field.name in table.names else None
    found = by_id.get(number)
    if found is not None:
        # A cast finds the parts of a column by their names.
        names = dict(_parts(found))
        for part, name in _parts(field):
            if part != number and names.get(part, name) != name:
                raise ValueError(
                    f"the field {name!r} of the column {field.name!r} is called {names[part]!r} in "
                    "an older file of the table; upserts do not support renamed fields in columns"
                )
    return found


def _parts(field: pa.Field) -> Iterator[tuple[bytes, str]]:
    """Return the ids and names of a field and of all fields in it."""
    number = (field.metadata or {}).get(_FIELD_ID)
    if number is not None:
        yield number, field.name
    kind = field.type
    if pa.types.is_map(kind):
        inner = [kind.key_field, kind.item_field]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = [kind.value_field]
    elif pa.types.is_struct(kind):
        inner = [kind.field(index) for index in range(kind.num_fields)]
    else:
        return
    for one in inner:
        yield from _parts(one)


def _only(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in names])


def _opened(to_write: FilesToWrite, path: str) -> pa.NativeFile:
    if ":" in path.partition("/")[0] or path.startswith("/"):
        folder, _, name = path.rpartition("/")
        return store_of(folder, to_write.options).open(name)
    return store_of(to_write.folder, to_write.options).open(path)


# The copy in PySpark has no type annotations.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
