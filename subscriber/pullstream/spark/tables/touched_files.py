"""The files of a table that may have some keys, found by partition values and statistics."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from .data_files import PartitionField, split, text_of

# Most rows and bytes of the files that a task reads and writes as one. A file with more is alone.
_TASK_ROWS = 250_000
_TASK_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class KnownFile:
    """A data file of a table.

    Attributes:
        path: Path relative to the table's folder, or a URL.
        rows: Number of rows; 0 if it is not known.
        size: Size in bytes.
        partition: The partition values as texts, by the names of the fields. None: they are those
            of another partitioning.
        least: Lower bounds of columns, as `comparable` has them. A column may be missing.
        greatest: Upper bounds of columns.
        values: The values of columns that are not in the file, as texts.
        own: The table's own description, with which it removes the file.
    """

    path: str
    rows: int
    size: int
    partition: Mapping[str, str | None] | None
    least: Mapping[str, Any]
    greatest: Mapping[str, Any]
    values: Mapping[str, str | None] = field(default_factory=dict)
    own: Any = field(default=None, repr=False, compare=False)


class TouchedFiles(NamedTuple):
    """Files of one state of a table.

    Attributes:
        state: The number of the state. None: an empty table without a number.
        files: The files that may have the keys.
    """

    state: int | None
    files: list[KnownFile]


class KeyRanges:
    """Keys of a batch, to be compared with the partition values and bounds of files.

    Args:
        keys: The columns of the keys, without nulls.
        partition_by: The values by which the table is divided. Those of a column of the key tell
            which keys a file cannot have.
    """

    def __init__(self, keys: pa.Table, partition_by: Sequence[PartitionField]) -> None:
        self._fields = [one for one in partition_by if one.column in keys.column_names]
        self._all = _sorted(keys)
        self._groups: dict[tuple[str | None, ...], tuple[list[Any], pa.Table]] = {}
        if self._fields:
            for values, part in split(keys, self._fields):
                pairs = zip(self._fields, values, strict=True)
                self._groups[tuple(text_of(*one) for one in pairs)] = _sorted(part)

    @property
    def names(self) -> list[str]:
        """The columns of the key."""
        return list(self._all[1].column_names)

    def may_be_in(self, file: KnownFile) -> bool:
        """Return whether a file may have one of the keys."""
        if file.partition is None or not self._fields:
            keys: pa.Table | None = self._all
        else:
            partition = file.partition
            keys = self._groups.get(tuple(partition[one.name] for one in self._fields))
        return keys is not None and _overlap(keys, file)


def _sorted(keys: pa.Table) -> tuple[list[Any], pa.Table]:
    table = pa.table([comparable(column) for column in keys.columns], names=list(keys.column_names))
    table = table.sort_by(table.column_names[0])
    return table.column(0).to_pylist(), table


def _overlap(keys: tuple[list[Any], pa.Table], file: KnownFile) -> bool:
    """Return whether all columns of a key are inside the bounds of a file."""
    first, table = keys
    name, *others = table.column_names
    least, greatest = file.least.get(name), file.greatest.get(name)
    begin = 0 if least is None else bisect_left(first, least)
    end = len(first) if greatest is None else bisect_right(first, greatest)
    if begin >= end:
        return False
    inside: Any = pa.scalar(True)
    for other in others:
        column = table.column(other).slice(begin, end - begin)
        if (bound := file.least.get(other)) is not None:
            inside = pc.and_(inside, pc.greater_equal(column, pa.scalar(bound, column.type)))
        if (bound := file.greatest.get(other)) is not None:
            inside = pc.and_(inside, pc.less_equal(column, pa.scalar(bound, column.type)))
    return bool(inside.as_py() if isinstance(inside, pa.Scalar) else pc.any(inside).as_py())


def comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with times as microseconds and dates as days since 1970."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    if pa.types.is_date32(kind):
        return column.cast(pa.int32())
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    return column


def tasks_of(files: Sequence[KnownFile], keys: Sequence[str]) -> Iterator[list[KnownFile]]:
    """Divide files into tasks. Files with neighbouring keys come together."""

    def place(file: KnownFile) -> tuple[Any, ...]:
        bounds = [file.least.get(name) for name in keys]
        partition = sorted((name, text or "") for name, text in (file.partition or {}).items())
        return partition, [(bound is not None, bound) for bound in bounds]

    gathered: list[KnownFile] = []
    rows = size = 0
    for one in sorted(files, key=place):
        rows, size = rows + one.rows, size + one.size
        if gathered and (rows > _TASK_ROWS or size > _TASK_BYTES):
            yield gathered
            gathered, rows, size = [], one.rows, one.size
        gathered.append(one)
    if gathered:
        yield gathered
