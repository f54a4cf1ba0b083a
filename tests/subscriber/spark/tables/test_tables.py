"""Tables that take each batch once, on a disk and in an S3 bucket."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.catalog import delete_files, load_catalog
from pyiceberg.io.pyarrow import PyArrowFileIO

from pullstream.spark.errors import IngestError
from pullstream.spark.tables.batch import BatchName
from pullstream.spark.tables.columns import ColumnCheck
from pullstream.spark.tables.data_files import WrittenFile
from pullstream.spark.tables.delta import DeltaLakeTable
from pullstream.spark.tables.file_table import FileTable
from pullstream.spark.tables.iceberg import IcebergTable
from pullstream.spark.tables.partitions import PartitionExpression, partition_fields
from pullstream.spark.tables.table import Table

FORMATS = ("parquet", "delta", "iceberg")
SOURCE = "c40bbb8e3f4b4b7c9a8e4c1df0e9a1f3"
MIDNIGHT = datetime(2026, 3, 2, tzinfo=timezone.utc)
TICK = timedelta(microseconds=1)

COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("country", pa.string()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("day", pa.date32()),
        pa.field("tags", pa.map_(pa.string(), pa.string())),
        pa.field("amount", pa.decimal128(12, 2)),
    ]
)

# The values of each column that a reader may filter by, with those that are easily stored wrong.
COUNTRIES = ("DE", "US", None, "ü/ %:x=", "a" * 40, "__HIVE_DEFAULT_PARTITION__ ")
TIMES = (
    MIDNIGHT,
    MIDNIGHT - TICK,
    MIDNIGHT + TICK,
    None,
    datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=timezone.utc),
    MIDNIGHT + timedelta(hours=5, minutes=59),
)
DAYS = (date(2026, 3, 1), None, date(1969, 12, 31))


def rows(*ids: int) -> pa.Table:
    """Return rows whose values depend on their ids."""
    return pa.Table.from_pydict(
        {
            "id": list(ids),
            "country": [COUNTRIES[one % len(COUNTRIES)] for one in ids],
            "at": [TIMES[one % len(TIMES)] for one in ids],
            "day": [DAYS[one % len(DAYS)] for one in ids],
            "tags": [[("k", str(one))] for one in ids],
            "amount": [None] * len(ids),
        },
        schema=COLUMNS,
    )


def table(
    format: str, folder: str, *partition_by: str, options: dict[str, str] | None = None
) -> Table:
    """Return an open table with the columns of `rows`."""
    fields = partition_fields([PartitionExpression.parse(one) for one in partition_by], COLUMNS)
    made: Table
    match format:
        case "delta":
            made = DeltaLakeTable(folder, fields, options)
        case "iceberg":
            made = IcebergTable(folder, fields, options, _catalog_of(folder, options))
        case _:
            made = FileTable(folder, fields, options)
    made.open(COLUMNS)
    return made


CATALOGS: dict[str, str] = {}


def _catalog_of(folder: str, options: dict[str, str] | None) -> dict[str, str] | None:
    """Return the properties of a catalog for a bucket."""
    return None if options is None else {"type": "sql", "uri": CATALOGS[folder]}


def written(to: Table, some: pa.Table, batch: BatchName) -> list[WrittenFile]:
    """Write rows as a task does."""
    to_write = to.files_to_write(f"{batch}-{uuid.uuid4().hex[:8]}")
    return to_write.write(some.to_batches(max_chunksize=3), "00000-0")


def found(format: str, folder: str, where: pc.Expression | str | None = None) -> list[int]:
    """Return the ids that a reader finds, which knows nothing of pullstream."""
    if format == "iceberg":
        path = Path(folder)
        catalog = load_catalog("default", type="sql", uri=f"sqlite:///{path.parent}/catalog.db")
        scan = catalog.load_table(("default", path.name)).scan(row_filter=where or "true")
        return sorted(scan.to_arrow().column("id").to_pylist())
    if format == "delta":
        engine = QueryBuilder().register("orders", DeltaTable(folder))
        result = engine.execute(f"SELECT id FROM orders WHERE {where or 'true'}")
        return sorted(pa.table(result.read_all()).column("id").to_pylist())
    dataset = ds.dataset(
        folder,
        partitioning=ds.HivePartitioning.discover(infer_dictionary=False),
        exclude_invalid_files=True,
    )
    return sorted(dataset.to_table(filter=where).column("id").to_pylist())


@pytest.mark.parametrize("format", FORMATS)
def test_a_table_takes_each_batch_of_a_source_once_and_those_of_two_sources_separately(
    format: str, folder: str
) -> None:
    """A batch with a smaller number than the newest one of its source is in the table."""
    orders = table(format, folder)
    first, other = BatchName(SOURCE, 3), BatchName("f" * 32, 1)
    assert orders.newest(SOURCE) == -1
    assert orders.commit(written(orders, rows(0, 1), first), first)
    assert not orders.commit(written(orders, rows(0, 1), first), first)
    assert orders.commit(written(orders, rows(2), other), other)
    assert (orders.newest(SOURCE), orders.newest("f" * 32)) == (3, 1)
    again = table(format, folder)
    assert (again.newest(SOURCE), again.newest("f" * 32)) == (3, 1)
    if format != "parquet":
        # A plain reader of a folder sees the files of a batch that lost, too.
        assert found(format, folder) == [0, 1, 2]


@pytest.mark.parametrize("format", FORMATS)
def test_a_batch_without_rows_leaves_its_number_in_the_table(format: str, folder: str) -> None:
    """All rows of the batch were bad, or it had none."""
    orders = table(format, folder)
    batch = BatchName(SOURCE, 0)
    assert written(orders, rows(), batch) == []
    assert orders.commit([], batch)
    assert table(format, folder).newest(SOURCE) == 0


@pytest.mark.parametrize("format", FORMATS)
def test_of_two_drivers_with_the_same_batch_past_the_check_one_commits(
    format: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both drivers have looked for the batch before either of them commits."""
    first, second = table(format, folder), table(format, folder)
    batch = BatchName(SOURCE, 7)
    files = written(first, rows(0, 1), batch), written(second, rows(0, 1), batch)
    results: list[bool] = []
    looked = _after_first_look(second, lambda: results.append(first.commit(files[0], batch)))
    monkeypatch.setattr(type(second), looked[0], looked[1])
    results.append(second.commit(files[1], batch))
    assert sorted(results) == [False, True]
    if format != "parquet":
        assert found(format, folder) == [0, 1]
    assert _versions(format, folder) == 1


def _after_first_look(second: Table, act: Callable[[], None]) -> tuple[str, Callable[..., Any]]:
    """Return the method by which a table looks for a batch, with `act` after its first call."""
    name = "newest" if isinstance(second, FileTable) else "_number"
    look: Callable[..., int] = getattr(type(second), name)
    seen: list[bool] = []

    def then_act(self: Table, *arguments: Any) -> int:
        number = look(self, *arguments)
        if self is second and not seen:
            seen.append(True)
            act()
        return number

    return name, then_act


def _versions(format: str, folder: str) -> int:
    """Return the number of versions that commits of batches have made."""
    match format:
        case "delta":
            return DeltaTable(folder).version()
        case "iceberg":
            path = Path(folder)
            catalog = load_catalog("default", type="sql", uri=f"sqlite:///{path.parent}/catalog.db")
            return len(catalog.load_table(("default", path.name)).snapshots())
        case _:
            return len(list(Path(folder, "_batches").glob("*.json")))


@pytest.mark.parametrize("format", FORMATS)
def test_a_commit_is_tried_again_after_another_source_was_faster(
    format: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other commit is for another batch, so both batches are in the table."""
    first, second = table(format, folder), table(format, folder)
    other, batch = BatchName("f" * 32, 1), BatchName(SOURCE, 7)
    files = written(first, rows(0), other), written(second, rows(1, 2), batch)
    looked = _after_first_look(second, lambda: _must(first.commit(files[0], other)))
    monkeypatch.setattr(type(second), looked[0], looked[1])
    assert second.commit(files[1], batch)
    assert found(format, folder) == [0, 1, 2]


def _must(is_true: bool) -> None:
    assert is_true


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_commit_gives_up_when_other_writers_are_faster_each_time(
    format: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says that nothing of the batch is in the table."""
    orders = table(format, folder)
    monkeypatch.setattr(type(orders), "_try", lambda *_: None)
    with pytest.raises(IngestError, match=r"50 commits to .* have failed.*Nothing of the batch"):
        orders.commit([], BatchName(SOURCE, 1))
    assert table(format, folder).newest(SOURCE) == -1


PARTITIONS: Sequence[tuple[str, ...]] = (
    ("country",),
    ("day(at)",),
    ("hour(at)", "country"),
    ("day",),
    ("day(day)", "country"),
)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("partition_by", PARTITIONS, ids=", ".join)
def test_each_filter_of_a_partitioned_table_finds_the_rows_of_a_full_scan(
    format: str, folder: str, partition_by: tuple[str, ...]
) -> None:
    """The filters are `=`, ranges and `is null`, on columns that partition the table or not."""
    orders = table(format, folder, *partition_by)
    batch = BatchName(SOURCE, 1)
    everything = rows(*range(60))
    assert orders.commit(written(orders, everything, batch), batch)
    assert found(format, folder) == list(range(60))
    filters: list[tuple[pc.Expression, str]] = []
    for column, values in (("country", COUNTRIES), ("at", TIMES), ("day", DAYS)):
        field = pc.field(column)
        filters.append((field.is_null(), f"{column} is null"))
        for value in values:
            if value is None or (format == "parquet" and column in partition_by):
                # Readers of folders guess the types of such columns.
                continue
            text = repr(value) if isinstance(value, str) else f"'{value.isoformat()}'"
            kind = COLUMNS.field(column).type
            scalar = pc.scalar(pa.scalar(value, kind))
            filters += [
                (field == scalar, f"{column} = {text}"),
                (field < scalar, f"{column} < {text}"),
                (field >= scalar, f"{column} >= {text}"),
            ]
    for expression, text in filters:
        expected = sorted(everything.filter(expression).column("id").to_pylist())
        where = expression if format == "parquet" else text
        assert found(format, folder, where) == expected, text


def test_an_iceberg_table_in_buckets_is_read_by_its_own_hash(folder: str) -> None:
    """A reader that looks for one value opens the files of one bucket."""
    orders = table("iceberg", folder, "bucket(4, country)", "bucket(8, id)")
    batch = BatchName(SOURCE, 1)
    assert orders.commit(written(orders, rows(*range(60)), batch), batch)
    assert found("iceberg", folder, "country = 'DE'") == list(range(0, 60, 6))
    assert found("iceberg", folder, "country is null") == list(range(2, 60, 6))
    for one in range(60):
        assert found("iceberg", folder, f"id = {one}") == [one]


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"id": pa.int32()}, "'id' of .* is BIGINT, and the rows have INT"),
        ({"more": pa.string()}, "has no column 'more', which the rows have as STRING"),
    ],
)
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_table_with_other_columns_than_the_rows_is_refused(
    format: str, folder: str, columns: dict[str, pa.DataType], text: str
) -> None:
    """The error names the column, its type in the table, and its type in the rows."""
    table(format, folder)
    kinds = {**dict(zip(COLUMNS.names, COLUMNS.types, strict=True)), **columns}
    other = pa.schema([pa.field(name, kind, name != "id") for name, kind in kinds.items()])
    made = DeltaLakeTable(folder) if format == "delta" else IcebergTable(folder)
    with pytest.raises(IngestError, match=text):
        made.open(other)


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_table_whose_column_must_not_be_null_is_refused_if_rows_may_have_null(
    format: str, folder: str
) -> None:
    """The libraries would accept the null, and readers would trust the table."""
    table(format, folder)
    other = pa.schema([field.with_nullable(True) for field in COLUMNS])
    made = DeltaLakeTable(folder) if format == "delta" else IcebergTable(folder)
    with pytest.raises(IngestError, match=r"the column 'id' of .* must not be null, but it may"):
        made.open(other)


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_table_that_is_partitioned_differently_is_refused(format: str, folder: str) -> None:
    """The error names both partitionings."""
    table(format, folder, "country")
    with pytest.raises(IngestError, match=r"is partitioned by .*country.*, and the job by .*at"):
        table(format, folder, "day(at)")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"delta.enableDeletionVectors": "true"}, "deletionVectors"),
        ({"delta.columnMapping.mode": "name"}, "columnMapping"),
        ({"delta.constraints.positive": "id > 0"}, "delta.constraints.positive"),
    ],
)
def test_a_delta_table_with_a_feature_that_the_job_does_not_honour_is_refused_by_name(
    folder: str, settings: dict[str, str], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other writers have given the table the feature."""
    table("delta", folder)
    log = Path(folder, "_delta_log", "00000000000000000000.json")
    _add_to_log(log, settings)
    with pytest.raises(IngestError, match=f"has .*{text}.*, which pullstream does not support"):
        table("delta", folder)


def _add_to_log(log: Path, settings: dict[str, str]) -> None:
    """Give a Delta table settings and their features in its first version."""
    import json

    features = {"delta.enableDeletionVectors": "deletionVectors"}
    lines = []
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        if "metaData" in entry:
            entry["metaData"]["configuration"] = settings
        if "protocol" in entry:
            names = [features[name] for name in settings if name in features]
            if names:
                entry["protocol"] |= {
                    "minReaderVersion": 3,
                    "minWriterVersion": 7,
                    "readerFeatures": names,
                    "writerFeatures": names,
                }
        lines.append(json.dumps(entry))
    log.write_text("\n".join(lines) + "\n")


# ---- columns that are added ----------------------------------------------------------------------

BEFORE = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("inner", pa.struct([pa.field("a", pa.float32())])),
        pa.field("items", pa.list_(pa.struct([pa.field("b", pa.string())]))),
    ]
)
AFTER = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("inner", pa.struct([pa.field("a", pa.float32()), pa.field("c", pa.int64())])),
        pa.field(
            "items", pa.list_(pa.struct([pa.field("b", pa.string()), pa.field("d", pa.bool_())]))
        ),
        pa.field("more", pa.string()),
    ]
)


def lake(format: str, folder: str, schema: pa.Schema, *, may_add: bool = True) -> Table:
    """Return an open table for rows with these columns."""
    kind = DeltaLakeTable if format == "delta" else IcebergTable
    made: Table = kind(folder, may_add=may_add)
    made.open(schema)
    return made


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_columns_are_added_to_a_table_also_inside_of_structs_and_lists(
    format: str, folder: str
) -> None:
    """Rows of before have null in the new columns, and a job with the old columns goes on."""
    old = lake(format, folder, BEFORE)
    one, two, three = (BatchName(SOURCE, number) for number in (1, 2, 3))
    before = pa.Table.from_pylist(
        [{"id": 1, "inner": {"a": 0.5}, "items": [{"b": "x"}]}], schema=BEFORE
    )
    after = pa.Table.from_pylist(
        [{"id": 2, "inner": {"a": 1.5, "c": 7}, "items": [{"b": "y", "d": True}], "more": "z"}],
        schema=AFTER,
    )
    assert old.commit(written(old, before, one), one)
    new = lake(format, folder, AFTER)
    assert new.commit(written(new, after, two), two)
    assert old.commit(written(old, before, three), three)
    assert found(format, folder) == [1, 1, 2]
    assert found(format, folder, "more is null") == [1, 1]
    # Nothing is left to add, for this job and for a second one with the same columns.
    versions = _versions(format, folder)
    lake(format, folder, AFTER)
    assert _versions(format, folder) == versions


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_two_jobs_that_add_the_same_column_both_continue(
    format: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second job has loaded the table before the first one adds the column."""
    lake(format, folder, BEFORE)
    check = ColumnCheck.must_change
    seen: list[bool] = []

    def after_the_other(self: ColumnCheck, table: pa.Schema, rows: pa.Schema) -> bool:
        if not seen:
            seen.append(True)
            lake(format, folder, AFTER)
        return check(self, table, rows)

    monkeypatch.setattr(ColumnCheck, "must_change", after_the_other)
    assert lake(format, folder, AFTER).newest(SOURCE) == -1


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (pa.field("more", pa.string(), nullable=False), "'more', which is NOT NULL in the job's"),
        (pa.field("ID", pa.int32()), "has the column 'id', and the rows have 'ID'; give both the"),
        (
            pa.field("inner", pa.struct([pa.field("A", pa.float32())])),
            r"has the column 'inner\.a', and the rows have 'inner\.A'",
        ),
        (
            pa.field("items", pa.string()),
            "'items' of .* is ARRAY<STRUCT<b STRING>>, and the rows have STRING",
        ),
    ],
)
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_columns_that_would_break_readers_are_not_added(
    format: str, folder: str, column: pa.Field, text: str
) -> None:
    """NOT NULL columns, names that differ only in case, and other types are refused."""
    lake(format, folder, BEFORE)
    others = [field for field in BEFORE if field.name.lower() != column.name.lower()]
    with pytest.raises(IngestError, match=text):
        lake(format, folder, pa.schema([*others, column]))


def test_an_iceberg_table_widens_the_types_of_its_columns(folder: str) -> None:
    """INT becomes BIGINT, and FLOAT becomes DOUBLE. Delta refuses both."""
    old = lake("iceberg", folder, BEFORE)
    one, two = BatchName(SOURCE, 1), BatchName(SOURCE, 2)
    before = pa.Table.from_pylist([{"id": 1, "inner": {"a": 0.5}, "items": []}], schema=BEFORE)
    assert old.commit(written(old, before, one), one)
    wide = BEFORE.set(0, pa.field("id", pa.int64(), nullable=False)).set(
        1, pa.field("inner", pa.struct([pa.field("a", pa.float64())]))
    )
    new = lake("iceberg", folder, wide)
    after = pa.Table.from_pylist([{"id": 2**40, "inner": {"a": 0.1}, "items": []}], schema=wide)
    assert new.commit(written(new, after, two), two)
    assert found("iceberg", folder) == [1, 2**40]
    assert found("iceberg", folder, f"id = {2**40}") == [2**40]
    lake("delta", f"{folder}-delta", BEFORE)
    with pytest.raises(IngestError, match=r"'id' of .* is INT, and the rows have BIGINT"):
        lake("delta", f"{folder}-delta", wide)


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_without_the_option_no_column_is_added(format: str, folder: str) -> None:
    """The error names the column, its type, and the option."""
    lake(format, folder, BEFORE)
    with pytest.raises(IngestError, match=r"no column 'inner\.c', .*BIGINT; .*--evolve add"):
        lake(format, folder, AFTER, may_add=False)


def test_the_unlisted_files_of_a_batch_are_deleted_when_its_list_exists(folder: str) -> None:
    """Files of other batches stay, and so do files of a batch without a list."""
    orders = table("parquet", folder, "country")
    assert isinstance(orders, FileTable)
    batch, other = BatchName(SOURCE, 1), BatchName(SOURCE, 2)
    killed = written(orders, rows(0, 1), batch)
    orders.delete_unlisted(batch)
    assert all(Path(folder, file.path).exists() for file in killed)
    files, later = written(orders, rows(0, 1), batch), written(orders, rows(2), other)
    assert orders.commit(files, batch)
    assert not any(Path(folder, file.path).exists() for file in killed)
    assert all(Path(folder, file.path).exists() for file in (*files, *later))


def test_opening_a_folder_deletes_the_unlisted_files_of_its_newest_batches(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run was killed after the files, and the next one after the list."""
    orders = table("parquet", folder)
    assert isinstance(orders, FileTable)
    batch, next_one = BatchName(SOURCE, 1), BatchName(SOURCE, 2)
    killed = written(orders, rows(0), batch)
    with monkeypatch.context() as patch:
        patch.setattr(FileTable, "delete_unlisted", lambda *_: None)
        files, unfinished = written(orders, rows(0), batch), written(orders, rows(1), next_one)
        assert orders.commit(files, batch)
    table("parquet", folder)
    assert not any(Path(folder, file.path).exists() for file in killed)
    assert all(Path(folder, file.path).exists() for file in (*files, *unfinished))


@pytest.mark.parametrize("attempt", [0, 1])
def test_files_of_lost_attempts_are_looked_for_only_if_a_task_was_repeated(
    folder: str, attempt: int
) -> None:
    """To look for them lists the whole folder, so it must not happen after each batch."""
    orders = table("parquet", folder)
    for number in (1, 2):
        batch = BatchName(SOURCE, number)
        lost, files = written(orders, rows(0), batch), written(orders, rows(0), batch)
        assert orders.commit([replace(file, attempt=attempt) for file in files], batch)
        is_there = Path(folder, lost[0].path).exists()
        assert is_there == (number == 2 and not attempt)


# ---- buckets -------------------------------------------------------------------------------------


@pytest.fixture
def bucket(s3: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Return the URL of a table in the S3 bucket."""
    url = f"s3://lake/{uuid.uuid4().hex}"
    CATALOGS[url] = f"sqlite:///{tmp_path}/catalog.db"
    return url


@pytest.mark.parametrize(("store", "scheme"), [("s3", "s3"), ("azure", "az"), ("gcs", "gs")])
@pytest.mark.parametrize("format", FORMATS)
def test_a_table_in_an_object_store_takes_each_batch_once(
    format: str,
    store: str,
    scheme: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """Two drivers hold the same batch past the check, and both write its files."""
    options: dict[str, str] = request.getfixturevalue(store)
    url = f"{scheme}://lake/{uuid.uuid4().hex}"
    CATALOGS[url] = f"sqlite:///{tmp_path}/catalog.db"
    first = table(format, url, "country", options=options)
    second = table(format, url, "country", options=options)
    batch = BatchName(SOURCE, 1)
    files = written(first, rows(0, 1, 2), batch), written(second, rows(0, 1, 2), batch)
    results: list[bool] = []
    looked = _after_first_look(second, lambda: results.append(first.commit(files[0], batch)))
    monkeypatch.setattr(type(second), looked[0], looked[1])
    results.append(second.commit(files[1], batch))
    assert sorted(results) == [False, True]
    assert table(format, url, "country", options=options).newest(SOURCE) == 1
    if format == "delta":
        reader = DeltaTable(url, storage_options=options).to_pyarrow_dataset()
        assert sorted(reader.to_table().column("id").to_pylist()) == [0, 1, 2]


@pytest.mark.parametrize("format", FORMATS)
def test_a_missing_bucket_is_an_error_before_anything_is_written(
    format: str, s3: dict[str, str], tmp_path: Path
) -> None:
    """The error names the table and the bucket."""
    url = "s3://nowhere/orders"
    CATALOGS[url] = f"sqlite:///{tmp_path}/catalog.db"
    with pytest.raises(IngestError, match="nowhere"):
        table(format, url, options=s3)


def test_the_secrets_of_an_object_store_are_not_in_the_text_of_what_executors_get(
    bucket: str, s3: dict[str, str]
) -> None:
    """Spark prints such objects in plans and logs."""
    for format in FORMATS:
        to_write = table(format, bucket, options=s3).files_to_write("x")
        assert "secret" not in repr(to_write)


def test_an_old_metadata_file_that_another_writer_of_iceberg_has_deleted_is_no_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Both were to delete it. A file that cannot be deleted is a warning."""
    caplog.set_level(logging.WARNING)
    gone = str(tmp_path / "gone.metadata.json")
    delete_files(PyArrowFileIO(), {gone}, "metadata")
    assert caplog.messages == []
    (tmp_path / "folder").mkdir()
    delete_files(PyArrowFileIO(), {str(tmp_path / "folder")}, "metadata")
    delete_files(PyArrowFileIO(), {gone}, "manifest")
    assert [" ".join(text.split()[:5]) for text in caplog.messages] == [
        "Failed to delete metadata file",
        "Failed to delete manifest file",
    ]
