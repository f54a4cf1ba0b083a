"""Tables of all formats, written as a job writes them, but without Spark."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from pullstream.spark.tables.batch import BatchName
from pullstream.spark.tables.compaction import Compacted
from pullstream.spark.tables.data_files import PartitionField, WrittenFile
from pullstream.spark.tables.delta import DeltaLakeTable
from pullstream.spark.tables.file_table import FileTable
from pullstream.spark.tables.iceberg import IcebergTable
from pullstream.spark.tables.maintenance import TableLocation
from pullstream.spark.tables.table import Table

FORMATS = ("delta", "iceberg", "parquet", "json")
LAKES = ("delta", "iceberg")

SOURCE = uuid.UUID(int=1).hex
OTHER = uuid.UUID(int=2).hex

COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("at", pa.timestamp("us", "UTC")),
    ]
)
_JSON_COLUMNS = pa.schema([COLUMNS.field("at"), pa.field("_line", pa.string())])
_DAY = datetime(2026, 11, 1, tzinfo=timezone.utc)


def table(kind: str, folder: Path) -> Table:
    """Return a table that is partitioned by day, and opened."""
    days = (PartitionField("day", "at", 0, "at_day"),)
    made: Table
    match kind:
        case "delta":
            made = DeltaLakeTable(str(folder), days)
        case "iceberg":
            made = IcebergTable(str(folder), days)
        case _:
            made = FileTable(str(folder), days, is_json=kind == "json")
    made.open(_JSON_COLUMNS if kind == "json" else COLUMNS)
    return made


def files(
    into: Table, batch: BatchName, ids: Sequence[int], *, days: Sequence[int] = (0,), count: int = 1
) -> list[WrittenFile]:
    """Write the files of a batch, `count` for each day. The days of the rows take turns."""
    times = [_DAY + timedelta(days=days[index % len(days)]) for index in range(len(ids))]
    at = pa.array(times, COLUMNS.field("at").type)
    if isinstance(into, FileTable) and into.files_to_write("").is_json:
        lines = [json.dumps({"id": one}) for one in ids]
        rows = pa.record_batch([at, pa.array(lines)], schema=_JSON_COLUMNS)
    else:
        texts = [f"text {one}" for one in ids]
        rows = pa.record_batch([pa.array(ids, pa.int64()), texts, at], schema=COLUMNS)
    found = []
    size = len(ids) // count
    for number in range(count):
        writer = into.files_to_write(f"{batch}-{uuid.uuid4().hex[:8]}")
        found += writer.write([rows.slice(number * size, size)], f"{number:05}-0")
    return found


def put(
    into: Table,
    number: int,
    ids: Sequence[int],
    *,
    source: str = SOURCE,
    days: Sequence[int] = (0,),
    count: int = 1,
) -> bool:
    """Write and commit a batch."""
    batch = BatchName(source, number)
    return into.commit(files(into, batch, ids, days=days, count=count), batch)


def ids(kind: str, folder: Path) -> list[int]:
    """Return the ids of all rows, as a reader finds them, in order."""
    match kind:
        case "delta":
            found = DeltaTable(str(folder)).to_pyarrow_table()["id"].to_pylist()
        case "iceberg":
            found = IcebergTable(str(folder)).existing().scan().to_arrow()["id"].to_pylist()
        case "parquet":
            found = [
                one
                for path in data_files(folder)
                for one in pq.ParquetFile(path).read()["id"].to_pylist()
            ]
        case _:
            found = [
                json.loads(line)["id"]
                for path in data_files(folder)
                for line in path.read_text().splitlines()
            ]
    return sorted(found)


def data_files(folder: Path) -> list[Path]:
    """Return the data files in a folder, whether the table names them or not."""
    return sorted(folder.rglob("part-*"))


def current_files(kind: str, folder: Path) -> list[str]:
    """Return the files that readers of the newest version read."""
    match kind:
        case "delta":
            return DeltaTable(str(folder)).file_uris()
        case "iceberg":
            found = IcebergTable(str(folder)).existing()
            return [task.file.file_path for task in found.scan().plan_files()]
        case _:
            return [str(path) for path in data_files(folder)]


def compact(folder: Path, **options: Any) -> Compacted:
    """Compact a table whose format is that of its files."""
    return TableLocation(folder=str(folder)).opened().compact(**options)


def once_before(
    monkeypatch: pytest.MonkeyPatch, target: Any, name: str, action: Callable[[], object]
) -> None:
    """Let an action happen before the first call of a function."""
    original = getattr(target, name)
    left = [action]

    def patched(*args: Any, **options: Any) -> Any:
        if left:
            left.pop()()
        return original(*args, **options)

    monkeypatch.setattr(target, name, patched)
