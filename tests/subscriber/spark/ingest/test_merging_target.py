"""Upserts into Delta and Iceberg tables on real Spark: rows, conflicts and markers."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import pytest
from deltalake import DeltaTable, Field, TableFeatures, schema, write_deltalake
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import ManifestContent
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import StringType as IcebergString
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from pullstream import TopicAdminClient
from pullstream.spark import IngestJob, run_ingest
from pullstream.spark.errors import IngestError
from pullstream.spark.ingest import merging_target
from pullstream.spark.ingest.changes import Changes, merge_columns
from pullstream.spark.ingest.columns import arrow_schema
from pullstream.spark.ingest.decoding import JsonDecoding
from pullstream.spark.ingest.merging_target import MergingTarget, newest_changes
from pullstream.spark.ingest.report import Totals
from pullstream.spark.stores import LocalFolder
from pullstream.spark.tables import deleted_keys
from pullstream.spark.tables.batch import BatchName
from pullstream.spark.tables.delta import DeltaLakeTable
from pullstream.spark.tables.iceberg import IcebergTable
from pullstream.spark.tables.maintenance import TableLocation
from pullstream.spark.tables.merge import MergeColumns
from pullstream.spark.tables.partitions import PartitionExpression, partition_fields
from pullstream_emulator import Emulator
from tests.subscriber.spark.stage import QUICK, SUBSCRIPTION, TOPIC, subscribed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = (
    "id BIGINT NOT NULL, country STRING, at TIMESTAMP, value INT, tags MAP<STRING, STRING>, "
    "pubsub_message_id STRING NOT NULL, pubsub_publish_time TIMESTAMP NOT NULL, "
    "_deleted BOOLEAN NOT NULL"
)
REQUIRED = {"id", "pubsub_message_id", "pubsub_publish_time", "_deleted"}
COLUMNS = MergeColumns(
    ("id",),
    ("at", "pubsub_publish_time", "pubsub_message_id"),
    frozenset({"pubsub_message_id"}),
)
START = datetime(2026, 11, 1, tzinfo=timezone.utc)
FORMATS = ("delta", "iceberg")


class Change(NamedTuple):
    """A change of a row, with the values in the order of the table's columns."""

    id: int
    country: str | None
    at: datetime | None
    value: int
    tags: dict[str, str] | None
    message_id: str
    publish_time: datetime
    deleted: bool = False

    @property
    def age(self) -> tuple[Any, ...]:
        return (self.at is not None, self.at or START, self.publish_time, int(self.message_id))


def change(
    id: int, hour: int | None, number: int, country: str | None = "DE", *, deleted: bool = False
) -> Change:
    at = None if hour is None else START + timedelta(hours=hour)
    published = START + timedelta(minutes=number // 3)
    return Change(id, country, at, number, {"n": str(number)}, str(number), published, deleted)


class Lake:
    """A table of one format, that several drivers write."""

    def __init__(self, spark: SparkSession, folder: Path, format: str, *partition_by: str) -> None:
        self.spark = spark
        self.folder = folder
        self.format = format
        rows = StructType.fromDDL(ROWS)
        assert isinstance(rows, StructType)
        self.schema = arrow_schema(rows, REQUIRED)
        expressions = [PartitionExpression.parse(one) for one in partition_by]
        self._fields = partition_fields(expressions, self.schema)

    def driver(self) -> MergingTarget:
        """Return the target of one driver, opened."""
        table = DeltaLakeTable if self.format == "delta" else IcebergTable
        target = MergingTarget(table(str(self.folder), self._fields), COLUMNS)
        target.open(self.spark, self.schema)
        return target

    def frame(self, changes: Iterable[Change]) -> DataFrame:
        return self.spark.createDataFrame([tuple(one) for one in changes], ROWS)

    def take(self, changes: Iterable[Change], batch: BatchName) -> bool:
        """Write a batch as a new driver does."""
        return self.driver().write(self.frame(changes), batch).commit()

    @property
    def rows(self) -> list[Change]:
        """The rows, without columns that partitioning or another writer has added."""
        if self.format == "delta":
            found = DeltaTable(str(self.folder)).to_pyarrow_table()
        else:
            found = self.iceberg.scan().to_arrow()
        ordered = found.select(self.schema.names).sort_by("id").to_pylist()
        rows = [Change(*row.values()) for row in ordered]
        return [row._replace(tags=None if row.tags is None else dict(row.tags)) for row in rows]

    @property
    def iceberg(self) -> Any:
        uri = f"sqlite:///{self.folder.parent / 'catalog.db'}"
        catalog = load_catalog("default", type="sql", uri=uri)
        return catalog.load_table(("default", self.folder.name))

    @property
    def versions(self) -> int:
        """Number of commits with a batch."""
        if self.format == "delta":
            return DeltaTable(str(self.folder)).version()
        return len(self.iceberg.metadata.snapshots)

    @property
    def paths(self) -> set[str]:
        """The names of the table's data files."""
        if self.format == "delta":
            found = DeltaTable(str(self.folder)).file_uris()
        else:
            found = [task.file.file_path for task in self.iceberg.scan().plan_files()]
        return {path.rpartition("/")[2] for path in found}


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path / "orders", request.param)


def newest(changes: Iterable[Change]) -> list[Change]:
    """Return the rows after all changes in their order."""
    applied = {one.id: one for one in sorted(changes, key=lambda one: one.age)}
    return sorted(applied.values(), key=lambda one: one.id)


@pytest.mark.parametrize(
    ("format", "partition_by"),
    [
        ("delta", ("country", "day(at)")),
        ("delta", ("id",)),
        ("iceberg", ("bucket(3, id)", "country")),
    ],
)
def test_the_table_equals_all_changes_applied_in_order(
    spark: SparkSession, tmp_path: Path, format: str, partition_by: tuple[str, ...]
) -> None:
    """Shuffled changes with ties come in batches, and one batch comes again under another name.

    Rows move between partitions, whose names have special characters.
    """
    lake = Lake(spark, tmp_path / "orders", format, *partition_by)
    chance = random.Random(7)
    keys = 5 if partition_by == ("id",) else 12
    changes = [
        change(
            chance.randrange(keys),
            chance.choice([None, 1, 20, 30, 50]),
            # From 90 on, so that some ids have more digits than others.
            number + 90,
            chance.choice([None, "DE", "a b/é%"]),
            deleted=chance.random() < 0.2,
        )
        for number in range(60)
    ]
    chance.shuffle(changes)
    batches = [changes[:25], changes[25:30], [], changes[30:], changes[:25]]
    driver = lake.driver()
    for number, batch in enumerate(batches):
        written = driver.write(lake.frame(batch), BatchName("s", number))
        assert written.commit()
        assert driver.newest(spark, "s") == number
    assert lake.rows == newest(changes)


@pytest.mark.parametrize(
    ("format", "partition_by"), [("delta", ("country",)), ("iceberg", ("bucket(3, id)",))]
)
def test_live_rows_equal_all_changes_although_old_deletions_are_dropped_between_batches(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    format: str,
    partition_by: tuple[str, ...],
) -> None:
    """Changes come late by up to a day, and deletions stay for a day. Batches are shuffled."""
    lake = Lake(spark, tmp_path / "orders", format, *partition_by)
    chance = random.Random(11)
    changes = [
        change(
            chance.randrange(8), number, number, chance.choice([None, "DE"]), deleted=number % 3 > 0
        )._replace(publish_time=START + timedelta(hours=number))
        for number in range(72)
    ]
    driver = lake.driver()
    dropped = 0
    for number, end in enumerate(range(12, 73, 12)):
        # A day of changes in any order, half of which the table has.
        batch = changes[max(0, end - 24) : end]
        chance.shuffle(batch)
        assert driver.write(lake.frame(batch), BatchName("s", number)).commit()
        now = (START + timedelta(hours=end + 13)).timestamp()
        monkeypatch.setattr(deleted_keys, "time_of", lambda _, now=now: now)
        location = TableLocation(folder=str(lake.folder), format=format)
        dropped += location.opened().drop_deleted(24 * 3600).dropped
        assert [row for row in lake.rows if not row.deleted] == [
            row for row in newest(changes[:end]) if not row.deleted
        ]
    assert dropped
    assert driver.newest(spark, "s") == 5


def test_a_key_comes_to_life_by_an_older_change_only_after_its_deletion_was_dropped(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then, the row of the deletion holds it back."""
    lake.take([change(1, 5, 1, deleted=True), change(2, 5, 2)], BatchName("s", 1))
    older = change(1, 4, 3)
    assert lake.take([older], BatchName("s", 2))
    assert lake.rows == [change(1, 5, 1, deleted=True), change(2, 5, 2)]
    now = (START + timedelta(days=2)).timestamp()
    monkeypatch.setattr(deleted_keys, "time_of", lambda _: now)
    location = TableLocation(folder=str(lake.folder), format=lake.format)
    assert location.opened().drop_deleted(24 * 3600).dropped == 1
    assert lake.rows == [change(2, 5, 2)]
    assert lake.take([older], BatchName("s", 3))
    assert lake.rows == [older, change(2, 5, 2)]


def test_two_drivers_with_the_same_batch_make_one_version(lake: Lake) -> None:
    """Both drivers are past the check and have written their files when they commit."""
    lake.take([change(1, 1, 1), change(2, 1, 2)], BatchName("s", 1))
    before = lake.versions
    changes = [change(1, 2, 3), change(3, 2, 4)]
    drivers = [lake.driver(), lake.driver()]
    written = [one.write(lake.frame(changes), BatchName("s", 2)) for one in drivers]
    assert [one.commit() for one in written] == [True, False]
    assert lake.versions == before + 1
    assert lake.rows == newest([*changes, change(2, 1, 2)])


@pytest.mark.parametrize("taken", [[], [(1, 1, 1)]], ids=["new rows", "rewritten rows"])
def test_files_of_upserts_that_only_an_executor_sees_are_an_error(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, taken: list[tuple[int, int, int]]
) -> None:
    """On a cluster, a folder may be on the disk of each executor."""
    lake.take([change(*one) for one in taken], BatchName("s", 1))
    before = lake.versions
    monkeypatch.setattr(LocalFolder, "size", lambda *_: None)
    with pytest.raises(IngestError, match="but the driver does not see it there"):
        lake.take([change(1, 2, 3)], BatchName("s", 2))
    assert lake.versions == before


def test_a_batch_is_joined_again_with_the_rows_of_another_drivers_commit(lake: Lake) -> None:
    """Another source commits changes of the same keys after the batch has read the table."""
    lake.take([change(number, 1, number) for number in range(4)], BatchName("s", 1))
    mine = [change(1, 3, 11), change(2, 3, 12), change(5, 3, 13)]
    others = [change(1, 2, 21), change(2, 4, 22), change(5, 4, 23, deleted=True)]
    driver = lake.driver()
    written = driver.write(lake.frame(mine), BatchName("s", 2))
    assert lake.take(others, BatchName("other", 1))
    # This loads the newer state, with which the commit would have no conflict.
    assert driver.newest(lake.spark, "other") == 1
    assert written.commit()
    old = [change(number, 1, number) for number in range(4)]
    assert lake.rows == newest([*old, *mine, *others])
    assert [driver.newest(lake.spark, one) for one in ("s", "other")] == [2, 1]


def test_a_batch_is_not_joined_again_when_a_commit_leaves_its_files_as_they_were(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table with a busy writer of other keys takes the batch at the second try."""
    joins: list[object] = []
    join = merging_target._MergedBatch._join

    def counted(batch: Any) -> Any:
        joins.append(batch)
        return join(batch)

    lake.take([change(number, 1, number) for number in range(4)], BatchName("s", 1))
    written = lake.driver().write(lake.frame([change(1, 2, 11)]), BatchName("s", 2))
    lake.take([change(100, 1, 21)], BatchName("other", 1))
    monkeypatch.setattr(merging_target._MergedBatch, "_join", counted)
    assert written.commit()
    assert joins == []
    assert [row.value for row in lake.rows] == [0, 11, 2, 3, 21]


def test_a_batch_without_effect_writes_its_marker(lake: Lake) -> None:
    """All changes of the batch are older than the rows; files and rows stay as they are."""
    lake.take([change(1, 5, 1), change(2, 5, 2, deleted=True)], BatchName("s", 1))
    paths, rows = lake.paths, lake.rows
    assert lake.take([change(1, 4, 3), change(2, 4, 4)], BatchName("s", 2))
    assert (lake.paths, lake.rows) == (paths, rows)
    assert lake.driver().newest(lake.spark, "s") == 2
    assert not lake.take([change(1, 6, 5)], BatchName("s", 2))
    assert lake.rows == rows


def test_files_without_a_replaced_row_stay(lake: Lake) -> None:
    """The bounds of the files tell that they do not have the keys of the batch."""
    lake.take([change(number, 1, number) for number in range(10)], BatchName("s", 1))
    first = lake.paths
    lake.take([change(number, 1, number) for number in range(20, 30)], BatchName("s", 2))
    second = lake.paths - first
    lake.take([change(25, 2, 40)], BatchName("s", 3))
    assert first < lake.paths
    assert not second & lake.paths


def test_iceberg_keeps_no_manifests_of_removed_files(spark: SparkSession, tmp_path: Path) -> None:
    """Each commit has at most its own, so that commits do not become slower."""
    lake = Lake(spark, tmp_path / "orders", "iceberg")
    driver = lake.driver()
    for number in range(4):
        batch = [change(1, number, number), change(100 + number, 1, number)]
        assert driver.write(lake.frame(batch), BatchName("s", number)).commit()
    manifests = lake.iceberg.current_snapshot().manifests(lake.iceberg.io)
    dead = [one for one in manifests if not (one.has_added_files() or one.has_existing_files())]
    assert len(dead) == 1
    assert len(lake.rows) == 5


@pytest.mark.parametrize("format", FORMATS)
def test_a_key_may_have_columns_of_all_allowed_types(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    """Bounds of files are compared with keys, and rows with changes, in each type."""
    ddl = (
        "flag BOOLEAN, day DATE, time TIMESTAMP, wall TIMESTAMP_NTZ, price DECIMAL(10, 2), "
        "raw BINARY, small SMALLINT, tiny TINYINT, text STRING"
    )
    keys = [field.split()[0] for field in ddl.replace("(10, 2)", "").split(", ")]
    changes = spark.sql(
        "SELECT id % 2 = 0 AS flag, date_from_unix_date(id) AS day, timestamp_micros(id) AS time, "
        "timestamp_ntz '2026-11-01 00:00:00' + make_dt_interval(id) AS wall, "
        "CAST(id / 4 AS DECIMAL(10, 2)) AS price, CAST(CAST(id AS STRING) AS BINARY) AS raw, "
        "CAST(id AS SMALLINT) AS small, CAST(id AS TINYINT) AS tiny, "
        "repeat(CAST(id AS STRING), 40) AS text, CAST(id AS STRING) AS pubsub_message_id, "
        "timestamp '2026-11-01 00:00:00' AS pubsub_publish_time, false AS _deleted FROM range(10)"
    )
    schema = arrow_schema(changes.schema, {*keys, *REQUIRED} - {"id"})
    columns = merge_columns(keys, None, schema)
    table = DeltaLakeTable if format == "delta" else IcebergTable
    target = MergingTarget(table(str(tmp_path / "rows")), columns)
    target.open(spark, schema)
    for number, part in enumerate((changes.where("tiny < 5"), changes.where("tiny >= 5"))):
        assert target.write(part, BatchName("s", number)).commit()
    newer = changes.where("tiny = 3").withColumn("_deleted", F.lit(True))
    newer = newer.withColumn("pubsub_message_id", F.lit("100"))
    again = changes.where("tiny = 7")
    written = target.write(newer.unionByName(again), BatchName("s", 2))
    assert written.commit()
    if format == "delta":
        found = DeltaTable(str(tmp_path / "rows")).to_pyarrow_table()
    else:
        uri = f"sqlite:///{tmp_path / 'catalog.db'}"
        catalog = load_catalog("default", type="sql", uri=uri)
        found = catalog.load_table("default.rows").scan().to_arrow()
    rows = zip(found["tiny"].to_pylist(), found["_deleted"].to_pylist(), strict=True)
    assert sorted(rows) == [(number, number == 3) for number in range(10)]


def test_columns_of_other_writers_keep_their_values_in_rewritten_files(lake: Lake) -> None:
    """A rewritten file has all columns of the table, and new rows have null in them."""
    lake.take([], BatchName("s", 1))
    foreign = lake.frame([change(1, 1, 1), change(2, 1, 2)]).toArrow().cast(lake.schema)
    foreign = foreign.append_column("note", [["first", "second"]])
    if lake.format == "delta":
        field = Field("note", schema.PrimitiveType("string"))
        DeltaTable(str(lake.folder)).alter.add_columns([field])
        write_deltalake(str(lake.folder), foreign, mode="append")
    else:
        with lake.iceberg.update_schema() as update:
            update.add_column("note", IcebergString())
        lake.iceberg.append(foreign)
    lake.take([change(2, 2, 3), change(3, 2, 4)], BatchName("s", 2))
    if lake.format == "delta":
        found = DeltaTable(str(lake.folder)).to_pyarrow_table()
    else:
        found = lake.iceberg.scan().to_arrow()
    notes = zip(found["id"].to_pylist(), found["note"].to_pylist(), strict=True)
    assert sorted(notes) == [(1, "first"), (2, None), (3, None)]
    assert [row.value for row in lake.rows] == [1, 3, 4]


def test_a_delta_table_that_only_takes_appends_is_refused_before_a_message_is_taken(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The property is one that a job which appends honours without a check."""
    lake = Lake(spark, tmp_path / "orders", "delta")
    DeltaTable.create(str(lake.folder), lake.schema, configuration={"delta.appendOnly": "true"})
    with pytest.raises(IngestError, match=r"delta\.appendOnly, so its rows may not be replaced"):
        lake.driver()


def test_a_delta_table_whose_files_have_deleted_rows_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Another writer switches on deletion vectors while the job runs."""
    lake = Lake(spark, tmp_path / "orders", "delta")
    driver = lake.driver()
    DeltaTable(str(lake.folder)).alter.add_feature(
        TableFeatures.DeletionVectors, allow_protocol_versions_increase=True
    )
    with pytest.raises(IngestError, match="has deletionVectors, which pullstream does not support"):
        driver.write(lake.frame([change(1, 1, 1)]), BatchName("s", 1))


def test_an_iceberg_table_with_files_of_deleted_rows_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that another writer has deleted by merge-on-read must not come back."""
    lake = Lake(spark, tmp_path / "orders", "iceberg")
    lake.take([change(1, 1, 1)], BatchName("s", 1))
    deletes = SimpleNamespace(content=ManifestContent.DELETES)
    monkeypatch.setattr(Snapshot, "manifests", lambda self, io: [deletes])
    with pytest.raises(IngestError, match="has files of deleted rows, by a writer with merge-on-"):
        lake.take([change(1, 2, 2)], BatchName("s", 2))


def test_the_newest_change_of_a_key_is_found_if_names_have_dots(spark: SparkSession) -> None:
    """JSON fields may have any name."""
    rows = spark.createDataFrame(
        [(1, None, "7"), (1, 2, "6"), (2, 1, "9"), (2, 1, "10")], "`a.b` INT, `c.d` INT, e STRING"
    )
    columns = MergeColumns(("a.b",), ("c.d", "e"), frozenset({"e"}))
    assert sorted(map(tuple, newest_changes(rows, columns).collect())) == [
        (1, 2, "6"),
        (2, 1, "10"),
    ]


def test_the_condition_of_deletions_is_checked_with_the_columns(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    """A row is kept if the condition is null, and bad conditions are refused at the start.

    PySpark prints no lines of JSON about them.
    """
    decoding = JsonDecoding.from_ddl("id BIGINT, op STRING", metadata=False)
    data = [(json.dumps({"id": number, "op": op}).encode(),) for number, op in enumerate("ID")]
    messages = spark.createDataFrame([*data, (b'{"id": 2}',), (b'{"op": "I"}',)], "data BINARY")
    changes = Changes.of(decoding, ["id"], "op = 'D'")
    read = changes.read(messages, "batch")
    assert [tuple(row) for row in changes.good(read).collect()] == [
        (0, "I", False),
        (1, "D", True),
        (2, None, False),
    ]
    assert [row.reason for row in changes.bad(read).collect()] == ["missing: id"]
    assert changes.required >= {"id", "_deleted"}
    assert not any(row._deleted for row in Changes.of(decoding, ["id"]).good(read).collect())
    for condition in ("op", "op = ", "state = 'D'"):
        wrong = Changes.of(decoding, ["id"], condition)
        text = f"delete_when is {condition!r}; it must be an SQL condition on columns of the table"
        with pytest.raises(ValueError, match=re.escape(text)):
            wrong.good(read)
    assert "{" not in capfd.readouterr().err
    with pytest.raises(ValueError, match="schema has the column '_Deleted', whose name is reserv"):
        Changes.of(JsonDecoding.from_ddl("id BIGINT, _Deleted BOOLEAN"), ["id"])


@pytest.mark.parametrize("format", FORMATS)
def test_the_ingest_job_keeps_the_newest_message_of_each_key(
    spark: SparkSession, broker: Emulator, tmp_path: Path, format: str
) -> None:
    """The job marks deleted keys, and passes messages without a key to the bad records."""
    subscribed(broker)

    def publish(*records: dict[str, Any]) -> None:
        with TopicAdminClient(endpoint=broker.endpoint) as topics:
            topics.publish(TOPIC, [{"data": json.dumps(one).encode()} for one in records])

    def ingest() -> Totals:
        job = IngestJob(
            subscription=SUBSCRIPTION,
            to=str(tmp_path / "orders"),
            format=format,
            decode="json",
            schema="id BIGINT, op STRING, updated_at TIMESTAMP",
            merge_on=("id",),
            latest_by="updated_at",
            delete_when='op = "D"',
            available_now=True,
            options={"endpoint": broker.endpoint, **QUICK},
        )
        return run_ingest(job, spark=spark).totals

    def record(id: int | None, op: str | None, hour: int) -> dict[str, Any]:
        return {"id": id, "op": op, "updated_at": f"2026-11-01T{hour:02}:00:00Z"}

    publish(record(1, "I", 1), record(2, "I", 1), record(None, "I", 1), record(1, "U", 3))
    assert ingest() == Totals(batches=1, rows=4, bytes=mock.ANY, bad=1)
    publish(record(1, "U", 2), record(2, "D", 2), record(2, "U", 1), record(3, None, 1))
    assert ingest().rows == 4
    lake = Lake(spark, tmp_path / "orders", format)
    found = (
        DeltaTable(str(lake.folder)).to_pyarrow_table()
        if format == "delta"
        else lake.iceberg.scan().to_arrow()
    )
    rows = found.select(["id", "op", "_deleted"]).sort_by("id").to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (1, "U", False),
        (2, "D", True),
        (3, None, False),
    ]
