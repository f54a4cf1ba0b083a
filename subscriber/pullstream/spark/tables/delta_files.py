"""The data files of a Delta table, as actions of its log, with their statistics."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import pyarrow as pa

from pullstream.spark.errors import IngestError

from .data_files import PartitionField, WrittenFile
from .touched_files import KnownFile, comparable

if TYPE_CHECKING:
    import pyarrow.parquet as pq

# Columns with statistics, and the longest text in them, as Delta's own writers have it.
_STATISTICS_COLUMNS = 32
_STATISTICS_TEXT = 32
_LAST_CHARACTER = "\U0010ffff"

# Types whose bounds have the order of the values.
_ORDERED = (pa.types.is_integer, pa.types.is_date, pa.types.is_timestamp)
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)

# Some writers cut times in bounds to milliseconds.
_CUT = 1000


def added_action(
    file: WrittenFile, partition: Mapping[str, str | None], now: int
) -> dict[str, Any]:
    """Return the action that adds a file.

    Args:
        file: The file.
        partition: Its partition values, as texts.
        now: The time in milliseconds since 1970.
    """
    statistics = statistics_of(file.metadata) if file.footer else {}
    return {
        "add": {
            # The log has paths as URLs.
            "path": quote(file.path, safe="/="),
            "partitionValues": dict(partition),
            "size": file.size,
            "modificationTime": now,
            "dataChange": True,
            "stats": json.dumps({"numRecords": file.rows, **statistics}),
        }
    }


def removed_action(file: KnownFile, now: int) -> dict[str, Any]:
    """Return the action that removes a file; see `added_action`."""
    return {
        "remove": {
            "path": file.own,
            "deletionTimestamp": now,
            "dataChange": True,
            "extendedFileMetadata": True,
            "partitionValues": dict(file.partition or {}),
            "size": file.size,
        }
    }


class KnownFiles:
    """The files of a table's state, from deltalake's description of them."""

    def __init__(
        self,
        actions: pa.Table,
        keys: Sequence[str],
        partition_by: Sequence[PartitionField],
        place: str,
    ) -> None:
        self._actions = actions
        self._keys = keys
        self._in_path = [one for one in partition_by if one.transform in ("identity", "date")]
        self._place = place

    def __iter__(self) -> Iterator[KnownFile]:
        actions = self._actions
        paths, sizes, rows = (
            actions.column(name).to_pylist() for name in ("path", "size_bytes", "num_records")
        )
        partition = {name: _texts(one) for name, one in self._children("partition")}
        least, greatest = (
            {name: comparable(one).to_pylist() for name, one in self._bounds(side)}
            for side in ("min", "max")
        )
        cut = {name for name, one in self._bounds("max") if pa.types.is_timestamp(one.type)}
        for number, path in enumerate(paths):
            values = {name: texts[number] for name, texts in partition.items()}
            yield KnownFile(
                path=self._checked(path),
                rows=rows[number] or 0,
                size=sizes[number],
                partition=values,
                least={name: bounds[number] for name, bounds in least.items()},
                greatest={
                    name: bounds[number] + _CUT
                    if name in cut and bounds[number] is not None
                    else bounds[number]
                    for name, bounds in greatest.items()
                },
                values={one.name: values[one.name] for one in self._in_path},
                own=path,
            )

    def _checked(self, path: str) -> str:
        """Return the file's path in the folder."""
        if ":" in path.partition("/")[0]:
            raise IngestError(
                f"the Delta table {self._place} has the file {path!r}, which is outside of its "
                "folder; upserts rewrite files, and do not support shallow clones"
            )
        return unquote(path)

    def _children(self, name: str) -> Iterator[tuple[str, pa.ChunkedArray]]:
        if name not in self._actions.column_names:
            return
        column = self._actions.column(name)
        for field, child in zip(column.type, column.flatten(), strict=True):
            yield field.name, child

    def _bounds(self, name: str) -> Iterator[tuple[str, pa.ChunkedArray]]:
        for one, bounds in self._children(name):
            if one in self._keys and any(test(bounds.type) for test in (*_ORDERED, *_TEXTS)):
                yield one, bounds


def _texts(values: pa.ChunkedArray) -> list[str | None]:
    """Return partition values as the texts of `text_of`."""
    return [
        value
        if value is None or isinstance(value, str)
        else value.isoformat()
        if hasattr(value, "isoformat")
        else str(value).lower()
        for value in values.to_pylist()
    ]


# ---- statistics ----------------------------------------------------------------------------------


def statistics_of(metadata: pq.FileMetaData) -> dict[str, Any]:
    """Return Delta's statistics of a file: least, greatest and null values of its columns."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(min(metadata.num_columns, _STATISTICS_COLUMNS)):
        column = metadata.schema.column(index)
        groups = [
            metadata.row_group(number).column(index).statistics
            for number in range(metadata.num_row_groups)
        ]
        if "." in column.path or not groups or any(one is None for one in groups):
            continue
        name = column.name
        nulls[name] = sum(one.null_count for one in groups)
        if not all(one.has_min_max for one in groups):
            continue
        low = _bound(min(one.min for one in groups), is_upper=False)
        high = _bound(max(one.max for one in groups), is_upper=True)
        if low is not None and high is not None:
            least[name], greatest[name] = low, high
    return {"minValues": least, "maxValues": greatest, "nullCount": nulls}


def _bound(value: Any, *, is_upper: bool) -> Any:
    """Return a bound as JSON has it; None if there is none."""
    match value:
        case bool() | bytes() | float() | Decimal():
            # Parquet leaves NaN out, and readers may compare it.
            return None
        case str():
            if len(value) <= _STATISTICS_TEXT:
                return value
            beginning, next_one = value[:_STATISTICS_TEXT], value[_STATISTICS_TEXT]
            if not is_upper:
                return beginning
            return None if next_one == _LAST_CHARACTER else beginning + _LAST_CHARACTER
        case datetime():
            # In milliseconds, rounded outwards.
            rest = timedelta(microseconds=value.microsecond % 1000)
            value -= rest
            if is_upper and rest:
                value += timedelta(milliseconds=1)
            text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
            return f"{text}Z" if value.tzinfo is not None else text
        case int():
            return value
        case _ if hasattr(value, "isoformat"):
            return value.isoformat()
        case _:
            return None
