"""The ingestion job on real Spark: its tables and its acknowledgements."""

from __future__ import annotations

import json
import shutil
import threading
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pullstream import SubscriberClient, TopicAdminClient
from pullstream.spark import IngestJob, IngestReport, run_ingest
from pullstream.spark.errors import IngestError
from pullstream.spark.ingest.batch_handler import BatchHandler, Refused
from pullstream.spark.ingest.columns import arrow_schema
from pullstream.spark.ingest.decoding import JsonDecoding, Undecoded
from pullstream.spark.ingest.jdbc_target import JdbcTarget, StagedRows
from pullstream.spark.ingest.report import Totals
from pullstream.spark.ingest.targets import TableTarget, Target
from pullstream.spark.stores import LocalFolder
from pullstream.spark.tables.batch import BatchName
from pullstream.spark.tables.file_table import FileTable
from pullstream.spark.tables.merge import MergeColumns
from pullstream.spark.tables.partitions import PartitionExpression, partition_fields
from pullstream_emulator import Emulator
from pullstream_protocol import names
from tests.subscriber.ended_subscribers import wait_until_unread
from tests.subscriber.spark.stage import (
    SUBSCRIPTION,
    TOPIC,
    Ingest,
    ingest_into,
    publish,
    subscribed,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "id BIGINT NOT NULL, country STRING"

# A database makes its tables from the first rows.
NO_COLUMNS = pa.schema([])


@pytest.fixture(autouse=True)
def subscription(broker: Emulator) -> None:
    subscribed(broker)


@pytest.fixture
def ingest(spark: SparkSession, broker: Emulator, tmp_path: Path) -> Ingest:
    """Return a function that runs a job on the current messages and writes to the folder `rows`."""
    return ingest_into(tmp_path / "rows", spark, broker, available_now=True)


def publish_json(broker: Emulator, *records: Any) -> None:
    """Publish records as JSON, and bytes unchanged."""
    data = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in records]
    with TopicAdminClient(endpoint=broker.endpoint) as topics:
        topics.publish(TOPIC, [{"data": one} for one in data])


def test_the_ingest_job_writes_every_message_to_the_target_or_the_bad_records_table(
    spark: SparkSession, broker: Emulator, tmp_path: Path, ingest: Ingest
) -> None:
    """Good records go to folders by country, and bad ones to the other table with a reason.

    All are acknowledged.

    The next run with the same state continues from there.
    """
    records = [{"id": number, "country": "DE" if number % 2 else "US"} for number in range(20)]
    publish_json(broker, *records, b"not json", {"country": "DE"})
    arguments = {
        "decode": "json",
        "schema": SCHEMA,
        "partition_by": ("country", "day(pubsub_publish_time)"),
        "options": {"maxMessagesPerTrigger": "15"},
    }
    told: list[IngestReport] = []
    first = ingest(watch=told.append, **arguments)
    sizes = sum(len(json.dumps(one)) for one in records) + len(b"not json") + 17
    assert first.totals == Totals(batches=2, rows=22, bytes=sizes, bad=2)
    assert (first.to, first.bad_to) == (str(tmp_path / "rows"), str(tmp_path / "rows-deadletter"))
    assert not first.stopped
    assert told[-1].totals == first.totals
    assert broker.backlog(SUBSCRIPTION) == 0

    table = spark.read.parquet(first.to)
    assert sorted((row.id, row.country) for row in table.collect()) == [
        (one["id"], one["country"]) for one in records
    ]
    assert table.columns == [
        *("id", "pubsub_message_id", "pubsub_attributes", "pubsub_ordering_key"),
        *("pubsub_publish_time", "pubsub_delivery_attempt", "pubsub_batch"),
        *("pubsub_publish_time_day", "country"),
    ]
    bad = spark.read.parquet(str(first.bad_to))
    assert sorted((bytes(row.data), row.reason) for row in bad.collect()) == [
        (b"not json", "not one JSON value"),
        (b'{"country": "DE"}', "missing: id"),
    ]
    # The message's columns have the same names as in the good table.
    assert {name for name in bad.columns if name.startswith("pubsub_")} == {
        name
        for name in table.columns
        if name.startswith("pubsub_") and name != "pubsub_publish_time_day"
    }
    assert {"message_id", "attributes"}.isdisjoint(bad.columns)
    publish_json(broker, {"id": 20, "country": "FR"})
    assert ingest(**arguments).totals.rows == 1
    assert spark.read.parquet(first.to).count() == 21


@pytest.mark.parametrize("lost", ["_state", "_state/checkpoint"])
def test_the_ingest_job_loses_no_row_of_the_table_when_its_state_folder_is_lost(
    spark: SparkSession,
    broker: Emulator,
    tmp_path: Path,
    ingest: Ingest,
    lost: str,
) -> None:
    """Spark counts from 0 after a lost state, and that batch does not replace the first one."""
    publish(broker, 3)
    ingest(format="json")
    shutil.rmtree(tmp_path / "rows" / lost)
    publish(broker, 4)
    assert ingest(format="json").totals.rows == 4
    assert spark.read.json(str(tmp_path / "rows")).count() == 7


def test_the_ingest_job_does_not_write_a_batch_again_after_a_kill_and_a_lost_checkpoint(
    spark: SparkSession, broker: Emulator, tmp_path: Path, ingest: Ingest
) -> None:
    """The table proves that it has the batch, although Spark does not know it any more.

    The kill came after the commit of the table, and before the commit of Spark.
    """
    rows = kept_uncommitted(broker, ingest)
    shutil.rmtree(tmp_path / "rows" / "_state" / "checkpoint")
    publish(broker, 2)
    assert ingest().totals.rows == 2
    table = spark.read.parquet(str(tmp_path / "rows"))
    assert table.count() == rows + 2
    # The messages of the batch are redelivered when their leases end.
    assert broker.backlog(SUBSCRIPTION) == rows
    with SubscriberClient(endpoint=broker.endpoint) as client:
        client.seek(subscription=SUBSCRIPTION, time=datetime(2020, 1, 1, tzinfo=timezone.utc))
    assert ingest().duplicates >= rows
    assert spark.read.parquet(str(tmp_path / "rows")).count() == rows + 2
    assert broker.backlog(SUBSCRIPTION) == 0


def kept_uncommitted(broker: Emulator, ingest: Ingest) -> int:
    """Write a batch whose commit Spark does not learn of, and return its number of rows."""
    publish(broker, 4)
    commit = FileTable.commit

    def commit_and_die(table: FileTable, *arguments: Any) -> bool:
        commit(table, *arguments)
        raise OSError("killed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileTable, "commit", commit_and_die)
        with pytest.raises(IngestError, match="killed"):
            ingest()
    return 4


def test_the_ingest_job_reports_a_batch_that_the_table_had_already(
    spark: SparkSession, broker: Emulator, tmp_path: Path, ingest: Ingest
) -> None:
    """The killed run had committed the batch to the table. Its rows are not counted again."""
    rows = kept_uncommitted(broker, ingest)
    report = ingest()
    assert (report.totals.batches, report.totals.known, report.totals.rows) == (1, 1, 0)
    # The leases of the killed run end.
    wait_until_unread(broker, SUBSCRIPTION)
    broker.clock.advance(61)
    assert ingest().totals.rows == 0
    assert spark.read.parquet(str(tmp_path / "rows")).count() == rows
    assert broker.backlog(SUBSCRIPTION) == 0


def test_the_next_ingest_run_completes_a_batch_whose_bad_records_were_written_alone(
    spark: SparkSession, broker: Emulator, tmp_path: Path, ingest: Ingest
) -> None:
    """The bad records come first, so a batch in the table is complete.

    The next run must classify the same rows as bad.
    """
    publish_json(broker, {"id": 1}, b"bad")
    arguments = {"decode": "json", "schema": SCHEMA}
    commit = FileTable.commit

    def commit_bad(table: FileTable, *others: Any) -> bool:
        if table.place.endswith("rows"):
            raise OSError("killed")
        return commit(table, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileTable, "commit", commit_bad)
        with pytest.raises(IngestError, match="killed"):
            ingest(**arguments)
    with pytest.raises(IngestError, match=r"unfinished batch that was started with schema"):
        ingest(decode="json", schema="country STRING")
    assert broker.backlog(SUBSCRIPTION) == 2
    assert ingest(**arguments).totals.bad == 1
    assert spark.read.parquet(str(tmp_path / "rows")).count() == 1
    assert spark.read.parquet(str(tmp_path / "rows-deadletter")).count() == 1


def test_stopping_the_ingest_job_lets_it_write_and_commit_the_current_batch(
    spark: SparkSession, broker: Emulator, tmp_path: Path, ingest: Ingest
) -> None:
    """A stopped job writes, counts and commits the current batch.

    The next run reads the rest exactly once.
    """
    ids = publish(broker, 40)
    stop = threading.Event()

    def watch(report: IngestReport) -> None:
        if report.totals.batches:
            stop.set()

    options = {"maxMessagesPerTrigger": "10"}
    first = ingest(stop=stop, watch=watch, available_now=False, options=options)
    assert first.stopped
    assert spark.read.parquet(first.to).count() == first.totals.rows
    second = ingest(options=options)
    assert first.totals.rows + second.totals.rows == 40
    found = spark.read.parquet(first.to).collect()
    assert sorted(row.message_id for row in found) == sorted(ids)
    # The messages of the last batches of the first run come again, and are left out.
    wait_until_unread(broker, SUBSCRIPTION)
    broker.clock.advance(61)
    assert ingest().totals.rows == 0
    assert broker.backlog(SUBSCRIPTION) == 0


def test_the_ingest_job_does_not_acknowledge_messages_that_it_cannot_write(
    broker: Emulator, tmp_path: Path, ingest: Ingest
) -> None:
    """Unwritable messages are not acknowledged. The error gives the reason in one line."""
    publish(broker, 3)
    (tmp_path / "file").write_text("")
    with pytest.raises(IngestError, match=r"cannot write to .*ot a directory.*file") as caught:
        ingest(to=str(tmp_path / "file" / "rows"), state=tmp_path / "state")
    assert "\n" not in str(caught.value)
    assert broker.backlog(SUBSCRIPTION) == 3


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"partition_by": ("nothing",)}, ValueError, "partition_by has 'nothing', but the table"),
        ({"decode": "json", "schema": "id BIGINTT"}, ValueError, "schema is 'id BIGINTT'; it must"),
        ({"decode": "json", "schema": "pubsub_id INT"}, ValueError, "'pubsub_id', whose name is"),
        ({"decode": "json", "schema": "a INT, A INT"}, ValueError, "the column 'a' more than once"),
        (
            {"partition_by": ("day(data)",)},
            ValueError,
            "the type of 'data' is binary; it must be TIMESTAMP, TIMESTAMP_NTZ or DATE",
        ),
        (
            {"decode": "json", "schema": "at_day DATE, at TIMESTAMP", "partition_by": ("day(at)",)},
            ValueError,
            "adds the column 'at_day', but the table has a column of this name",
        ),
        ({"options": {"lingerMs": "long"}}, ValueError, "option 'lingerMs' is 'long'; it must be"),
        ({"options": {"linger": "1"}}, ValueError, "option 'linger' is unknown .did you mean"),
    ],
)
def test_an_ingest_job_that_cannot_succeed_fails_before_it_writes_anything(
    ingest: Ingest,
    tmp_path: Path,
    arguments: dict[str, Any],
    kind: type[Exception],
    text: str,
) -> None:
    """An impossible job is refused with an error that names the problem, and nothing is written."""
    with pytest.raises(kind, match=text):
        ingest(**arguments)
    assert not list((tmp_path).glob("rows/**/part-*"))


def test_the_ingest_job_fails_for_a_missing_subscription_with_the_servers_error_text(
    broker: Emulator, spark: SparkSession, tmp_path: Path
) -> None:
    """The error quotes the server's own words."""
    job = IngestJob(
        subscription=names.subscription_path("p", "nowhere"),
        to=str(tmp_path / "rows"),
        options={"endpoint": broker.endpoint},
    )
    with pytest.raises(IngestError, match=r"cannot start: NotFound: 404 .*resource=nowhere"):
        run_ingest(job, spark=spark)


def messages(spark: SparkSession, *data: bytes | None) -> DataFrame:
    rows = [(str(number), one) for number, one in enumerate(data)]
    return spark.createDataFrame(rows, "message_id STRING, data BINARY")


REASONS = {
    b'{"id": 1, "n": {"a": 1}, "country": "DE", "more": 3}': None,
    b'  {"id": 5}  \n': None,
    b"": "empty",
    b"not json": "not one JSON value",
    b'{"id": 1} and more': "not one JSON value",
    b'{"id": 1}{"id": 2}': "not one JSON value",
    b'{"id": 1}, {"id": 2}': "not one JSON value",
    b'{"id": 1}] and more': "not one JSON value",
    b'{"id": 1}} and more': "not one JSON value",
    b"\xff\xfe": "not UTF-8",
    b'{"id": 1, "country": "\xff"}': "not UTF-8",
    b'[{"id": 1}]': "not a JSON object",
    b"null": "not a JSON object",
    b'{"id": "x"}': "does not fit: id bigint (given: string)",
    b'{"id": 1, "n": {"a": "x"}}': "does not fit: n.a int (given: string)",
    b'{"country": "DE"}': "missing: id",
    b'{"id": null}': "missing: id",
}


def test_the_ingest_job_writes_bad_messages_and_the_reason_to_the_bad_records(
    spark: SparkSession,
) -> None:
    """Each message is either good or bad, and bad messages are stored unchanged with a reason."""
    decoding = JsonDecoding.from_ddl(f"{SCHEMA}, n STRUCT<a: INT>")
    read = decoding.read(messages(spark, *REASONS, None), "batch")
    good = decoding.good(read).collect()
    assert [(row.id, row.country, row.n) for row in good] == [(1, "DE", (1,)), (5, None, None)]
    found: list[Row] = decoding.bad(read).collect()
    told = {None if row.data is None else bytes(row.data): row.reason for row in found}
    assert told == {data: reason for data, reason in REASONS.items() if reason} | {None: "empty"}


SOURCE = "c40bbb8e3f4b4b7c9a8e4c1df0e9a1f3"
ONE = BatchName(SOURCE, 1)


def handler(target: Target, bad: Target | None, schema: str = SCHEMA) -> BatchHandler:
    decoding = JsonDecoding.from_ddl(schema) if bad else Undecoded()
    return BatchHandler(decoding, target, bad, name=lambda number: BatchName(SOURCE, number))


def opened(
    spark: SparkSession, folder: Path, rows: DataFrame, *partition_by: str, is_json: bool = False
) -> TableTarget:
    """Return the target for rows, in a folder."""
    schema = arrow_schema(rows.schema, ())
    fields = partition_fields([PartitionExpression.parse(one) for one in partition_by], schema)
    table = FileTable(str(folder), fields, is_json=is_json)
    target = TableTarget(table, fields if is_json else None)
    target.open(spark, schema)
    return target


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_the_ingest_job_names_day_and_hour_folders_by_utc_in_any_session_time_zone(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    """Day and hour folders use UTC in every session time zone.

    This also holds on a day on which that zone skips an hour.
    """
    times = [datetime(2026, 3, 29, hour, 59, 59, 999999, tzinfo=timezone.utc) for hour in (0, 2, 9)]
    rows = spark.createDataFrame([(time,) for time in times], "t TIMESTAMP")
    zone = spark.conf.get("spark.sql.session.timeZone")
    expected = {f"t_day=2026-03-29/t_hour=2026-03-29-{hour}" for hour in ("00", "02", "09")}
    try:
        for other in ("Europe/Berlin", "Asia/Kolkata", "America/Los_Angeles"):
            spark.conf.set("spark.sql.session.timeZone", other)
            folder = tmp_path / other
            target = opened(spark, folder, rows, "hour(t)", "day(t)", is_json=format == "json")
            assert target.write(rows, BatchName(SOURCE, 1)).commit()
            found = {
                str(path.parent.relative_to(folder)) for path in folder.glob(f"*/*/*.{format}")
            }
            assert found == expected
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))


def test_a_repeated_batch_of_the_ingest_job_replaces_the_files_of_its_killed_attempt(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A repeated batch deletes the files of a killed run when its list of files exists.

    Other batches stay unchanged.
    """
    rows = messages(spark, b'{"id": 1}', b'{"id": 2}', b"bad")
    decoding = JsonDecoding.from_ddl(SCHEMA)
    read = decoding.read(rows, "batch")
    target = opened(spark, tmp_path / "rows", decoding.good(read))
    bad = opened(spark, tmp_path / "bad", decoding.bad(read))
    handler(target, bad)(rows, 0)
    # Files that a killed run has written, and not listed.
    killed = tmp_path / "rows" / f"part-{BatchName(SOURCE, 1)}-0123-00000-0-0.parquet"
    shutil.copy(next((tmp_path / "rows").glob("part-*")), killed)
    target = opened(spark, tmp_path / "rows", decoding.good(read))
    for _ in range(2):
        handler(target, bad)(rows, 1)
    assert not killed.exists()
    assert target.newest(spark, SOURCE) == 1
    assert target.newest(spark, "other") == -1
    assert spark.read.parquet(target.place).count() == 4
    assert spark.read.parquet(bad.place).count() == 2


def test_the_ingest_job_keeps_the_most_frequent_fields_outside_the_schema(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A sender with a new field in each message must not fill the memory. Long names are cut."""
    often = [b'{"id": 1, "n": 1}'] * 3
    data = [f'{{"id": 1, "new{number}": 1}}'.encode() for number in range(30)]
    rows = messages(spark, *often, *data, b'{"id": 1, "' + b"x" * 500 + b'": 1}', b'{"bad": 1}')
    decoding = JsonDecoding.from_ddl(SCHEMA)
    read = decoding.read(rows, "batch")
    target = opened(spark, tmp_path / "rows", decoding.good(read))
    bad = opened(spark, tmp_path / "bad", decoding.bad(read))
    writer = handler(target, bad)
    writer(rows, 0)
    writer(rows, 1)
    assert writer.totals.unknown_fields == 68
    assert (len(writer.unknown), writer.unknown["n"]) == (20, 6)
    assert "bad" not in writer.unknown
    assert max(map(len, writer.unknown)) <= 100


@pytest.fixture(scope="module")
def derby(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for Derby databases, and move Derby's log there from the current folder."""
    folder = tmp_path_factory.mktemp("derby")
    jvm: Any = spark._jvm
    jvm.java.lang.System.setProperty("derby.stream.error.file", str(folder / "derby.log"))
    return folder


def test_the_ingest_job_writes_a_repeated_batch_to_a_database_only_once(
    spark: SparkSession, derby: Path
) -> None:
    """A database has each batch once, and maps become JSON.

    The killed runs ended before the transaction, after it, and before the bad records.
    """
    url = f"jdbc:derby:{derby / 'database'};create=true"
    target, bad = JdbcTarget(url, "orders"), JdbcTarget(url, "orders_bad")
    for one in (target, bad):
        one.open(spark, NO_COLUMNS)
        one.open(spark, NO_COLUMNS)
    rows = messages(spark, b'{"id": 1}', b'{"id": 2}', b"bad")
    first = handler(target, bad)
    assert target.newest(spark, SOURCE) == -1
    # A run that is killed after it has filled the staging table.
    target.write(
        JsonDecoding.from_ddl(SCHEMA).good(JsonDecoding.from_ddl(SCHEMA).read(rows, "batch")), ONE
    )
    first(rows, 1)
    assert target.newest(spark, SOURCE) == 1
    assert first.totals == Totals(1, 3, 21, 1)
    # A run that was killed after the batch was in the table.
    again = handler(target, bad)
    again(rows, 1)
    assert again.totals == Totals(1, 0, 0, 0, known=1)
    handler(target, bad)(rows, 2)
    assert sorted(row.id for row in spark.read.jdbc(url, "orders").collect()) == [1, 1, 2, 2]
    assert spark.read.jdbc(url, "orders_bad").count() == 2
    tables = spark.read.jdbc(url, "(SELECT tablename FROM sys.systables WHERE tabletype = 'T') t")
    assert {row[0].lower() for row in tables.collect()} == {
        *("orders", "orders_batches", "orders_bad", "orders_bad_batches")
    }
    # The table of batches has one row for each source.
    assert spark.read.jdbc(url, "orders_batches").count() == 1


def test_of_two_drivers_with_the_same_batch_one_writes_it_to_the_database(
    spark: SparkSession, derby: Path
) -> None:
    """Both have staged their rows when the first one commits."""
    url = f"jdbc:derby:{derby / 'drivers'};create=true"
    first, second = JdbcTarget(url, "orders"), JdbcTarget(url, "orders")
    first.open(spark, NO_COLUMNS)
    rows = messages(spark, b"a", b"b").select("data")
    staged = first.write(rows, ONE)
    other = StagedRows(second, rows, ONE, "orders_other")
    second.stage(rows, "orders_other")
    assert staged.rows == other.rows == 2
    assert [staged.commit(), other.commit()] == [True, False]
    assert spark.read.jdbc(url, "orders").count() == 2


def test_a_row_written_twice_by_a_spark_task_is_stored_in_the_database_once(
    spark: SparkSession, derby: Path
) -> None:
    """A row that a task wrote twice is stored once.

    Spark runs a task again if its executor was lost after the work was done. Equal rows of one
    batch stay two rows.
    """
    url = f"jdbc:derby:{derby / 'twice'};create=true"
    target = JdbcTarget(url, "orders")
    target.open(spark, NO_COLUMNS)
    rows = messages(spark, b"a", b"b", b"b").select("data").repartition(2)
    written = target.write(rows, ONE)
    assert isinstance(written, StagedRows)
    staged = spark.read.jdbc(url, written.table)
    # Collected first, because the rows are written to the same table, with the number of a second
    # copy.
    again = [(*row[:-1], row[-1] + 1) for row in staged.collect()[:2]]
    spark.createDataFrame(again, staged.schema).write.jdbc(url, written.table, mode="append")
    assert written.rows == 3
    assert written.commit()
    table = spark.read.jdbc(url, "orders")
    assert table.columns == ["data"]
    assert sorted(bytes(row.data) for row in table.collect()) == [b"a", b"b", b"b"]


def test_a_new_table_of_changes_and_its_index_are_made_in_one_transaction(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a job that is killed in between could not go on after a row of another writer."""
    made: list[tuple[str, ...]] = []
    monkeypatch.setattr(JdbcTarget, "_exists", lambda *_: False)
    monkeypatch.setattr(JdbcTarget, "_write", lambda _, rows, table, mode: made.append((table,)))
    monkeypatch.setattr(JdbcTarget, "_run", lambda _, session, *others: made.append(others))
    columns = MergeColumns(("message_id",), ("message_id",), frozenset({"message_id"}))
    target = JdbcTarget("jdbc:postgresql://nowhere/shop", "orders", columns=columns)
    target.stage(messages(spark, b"a"), "orders_staging")
    assert made[0] == ("orders_staging",)
    (transaction,) = made[1:]
    assert [one.partition(" (")[0] for one in transaction if one.startswith("CREATE")] == [
        "CREATE TABLE orders",
        "CREATE UNIQUE INDEX ON orders",
    ]


def test_the_ingest_error_for_an_unreachable_database_names_credentials_and_driver(
    spark: SparkSession, derby: Path
) -> None:
    """A missing database is an error that names the source of credentials and driver."""
    for url in (f"jdbc:derby:{derby / 'nowhere'}", "jdbc:nobody:knows"):
        with pytest.raises(IngestError, match=r"cannot connect to t in jdbc:.*PULLSTREAM_JDBC"):
            JdbcTarget(url, "t").open(spark, NO_COLUMNS)


def test_the_batch_writer_of_the_ingest_job_refuses_batches_after_it_was_closed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A closed handler refuses the batch, so that Spark does not consider it written."""
    rows = messages(spark, b"x")
    closing = handler(opened(spark, tmp_path / "rows", rows), None)
    assert closing.close()
    with pytest.raises(Refused):
        closing(rows, 0)
    assert closing.totals == Totals()


def test_files_that_only_an_executor_sees_are_an_error_and_not_rows_of_the_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster, a folder may be on the disk of each executor."""
    rows = messages(spark, b"a")
    target = opened(spark, tmp_path / "rows", rows)
    monkeypatch.setattr(LocalFolder, "size", lambda *_: None)
    with pytest.raises(IngestError, match="but the driver does not see it there"):
        target.write(rows, ONE)
    assert target.newest(spark, SOURCE) == -1
