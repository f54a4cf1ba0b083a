"""The ingestion job on real Spark: its tables and its acknowledgements."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import threading
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

from pullstream import TopicAdminClient
from pullstream.spark import IngestJob, IngestReport, run_ingest
from pullstream.spark.errors import IngestError
from pullstream.spark.ingest.batch_handler import BatchHandler, Refused, Totals
from pullstream.spark.ingest.decoding import JsonDecoding, Undecoded, dated
from pullstream.spark.ingest.jdbc_target import JdbcTarget
from pullstream.spark.ingest.targets import BATCH_COLUMN, FileTarget, Target
from pullstream_emulator import Emulator
from pullstream_protocol import names
from tests.subscriber.command_line import pullstream
from tests.subscriber.spark.stage import QUICK, SUBSCRIPTION, TOPIC, publish, subscribed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "id BIGINT NOT NULL, country STRING"

Ingest = Callable[..., IngestReport]


@pytest.fixture(autouse=True)
def subscription(broker: Emulator) -> None:
    # Some tests fail on purpose, and py4j would log these failures as well.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    subscribed(broker)


@pytest.fixture
def ingest(spark: SparkSession, broker: Emulator, tmp_path: Path) -> Ingest:
    """Return a function that runs a job on the current messages and writes to the folder `rows`."""

    def run(
        stop: threading.Event | None = None,
        watch: Callable[[IngestReport], None] = lambda report: None,
        **arguments: Any,
    ) -> IngestReport:
        options = {"endpoint": broker.endpoint, **QUICK, **arguments.pop("options", {})}
        defaults = {"to": str(tmp_path / "rows"), "available_now": True}
        job = IngestJob(subscription=SUBSCRIPTION, options=options, **{**defaults, **arguments})
        return run_ingest(job, spark=spark, stop=stop, watch=watch)

    return run


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
        "partition_by": ("country", "publish_date"),
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
        *("pubsub_publish_time", "pubsub_delivery_attempt", BATCH_COLUMN, *("country",)),
        "publish_date",
    ]
    bad = spark.read.parquet(str(first.bad_to))
    assert sorted((bytes(row.data), row.reason) for row in bad.collect()) == [
        (b"not json", "not one JSON value"),
        (b'{"country": "DE"}', "missing: id"),
    ]
    # The message's columns have the same names as in the good table.
    assert {name for name in bad.columns if name.startswith("pubsub_")} == {
        name for name in table.columns if name.startswith("pubsub_")
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


def test_the_next_ingest_run_overwrites_a_batch_that_failed_after_writing_its_rows(
    spark: SparkSession, broker: Emulator, tmp_path: Path, ingest: Ingest
) -> None:
    """The next run overwrites a batch that failed after its rows were written.

    It finds the batch by its name and classifies the same rows as bad.
    """
    publish_json(broker, {"id": 1}, b"bad")
    (tmp_path / "file").write_text("")
    arguments = {"decode": "json", "schema": SCHEMA}
    with pytest.raises(IngestError):
        ingest(bad_to=str(tmp_path / "file" / "bad"), **arguments)
    assert spark.read.parquet(str(tmp_path / "rows")).count() == 1
    with pytest.raises(IngestError, match=r"unfinished batch that was started with schema"):
        ingest(decode="json", schema="country STRING")
    assert broker.backlog(SUBSCRIPTION) == 2
    assert ingest(**arguments).totals.bad == 1
    assert spark.read.parquet(str(tmp_path / "rows")).count() == 1


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
    assert broker.backlog(SUBSCRIPTION) == 0


def test_the_ingest_job_does_not_acknowledge_messages_that_it_cannot_write(
    broker: Emulator, tmp_path: Path, ingest: Ingest
) -> None:
    """Unwritable messages are not acknowledged. The error gives the reason in one line."""
    publish(broker, 3)
    (tmp_path / "file").write_text("")
    with pytest.raises(IngestError, match=r"the job failed: .*ot a directory.*file") as caught:
        ingest(to=str(tmp_path / "file" / "rows"), state=tmp_path / "state")
    assert "\n" not in str(caught.value)
    assert broker.backlog(SUBSCRIPTION) == 3


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"partition_by": ("nothing",)}, ValueError, "partition_by has 'nothing', which is not"),
        ({"decode": "json", "schema": "id BIGINTT"}, ValueError, "schema is 'id BIGINTT'; it must"),
        ({"decode": "json", "schema": "pubsub_id INT"}, ValueError, "'pubsub_id', whose name is"),
        ({"decode": "json", "schema": "a INT, A INT"}, ValueError, "the column 'a' more than once"),
        (
            {"decode": "json", "schema": "Ingest_Batch INT"},
            ValueError,
            "the column 'Ingest_Batch', whose name is reserved: with the format 'parquet' the",
        ),
        (
            {
                "decode": "json",
                "schema": "publish_date DATE",
                "partition_by": ("publish_date",),
            },
            ValueError,
            "the column 'publish_date', but in partition_by this name means the publish time",
        ),
        ({"options": {"lingerMs": "long"}}, ValueError, "option 'lingerMs' is 'long'; it must be"),
        ({"options": {"linger": "1"}}, ValueError, "option 'linger' is unknown .did you mean"),
        ({"format": "delta"}, IngestError, "this Spark has no Delta Lake: pip install delta-spark"),
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
    assert not list((tmp_path).glob(f"rows/{BATCH_COLUMN}*"))


def test_the_ingest_job_fails_for_a_missing_subscription_with_the_servers_error_text(
    broker: Emulator, spark: SparkSession, tmp_path: Path
) -> None:
    """The error quotes the server's own words."""
    job = IngestJob(
        subscription=names.subscription_path("p", "nowhere"),
        to=str(tmp_path / "rows"),
        options={"endpoint": broker.endpoint},
    )
    with pytest.raises(IngestError, match=r"the job failed: NotFound: 404 .*resource=nowhere"):
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
    b'{"id": "x"}': "does not fit: id bigint",
    b'{"id": 1, "n": {"a": "x"}}': "a nested value does not fit the schema",
    b'{"country": "DE"}': "missing: id",
    b'{"id": null}': "missing: id",
}


def test_the_ingest_job_writes_undecodable_messages_and_the_reason_to_the_bad_records(
    spark: SparkSession,
) -> None:
    """Each message is either good or bad, and bad messages are stored unchanged with a reason."""
    decoding = JsonDecoding.from_ddl(f"{SCHEMA}, n STRUCT<a: INT>")
    read = decoding.read(messages(spark, *REASONS, None))
    good = decoding.good(read).collect()
    assert [(row.id, row.country, row.n) for row in good] == [(1, "DE", (1,)), (5, None, None)]
    found: list[Row] = decoding.bad(read).collect()
    told = {None if row.data is None else bytes(row.data): row.reason for row in found}
    assert told == {data: reason for data, reason in REASONS.items() if reason} | {None: "empty"}


def test_the_ingest_job_names_date_and_hour_folders_by_utc_in_any_session_time_zone(
    spark: SparkSession,
) -> None:
    """Date and hour folders use UTC in every session time zone.

    This also holds on a day on which that zone skips an hour.
    """
    times = [datetime(2026, 3, 29, hour, 59, 59, 999999, tzinfo=timezone.utc) for hour in (0, 2, 9)]
    rows = spark.createDataFrame([(time,) for time in times], "t TIMESTAMP")
    zone = spark.conf.get("spark.sql.session.timeZone")
    found = {}
    try:
        for other in ("Europe/Berlin", "Asia/Kolkata", "America/Los_Angeles"):
            spark.conf.set("spark.sql.session.timeZone", other)
            found[other] = dated(rows, "t", ("publish_date", "publish_hour")).drop("t").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    hours = ["2026-03-29-00", "2026-03-29-02", "2026-03-29-09"]
    assert all(list(days) == [("2026-03-29", hour) for hour in hours] for days in found.values())


def handler(
    target: Target, bad: Target | None, schema: str = SCHEMA, derived: tuple[str, ...] = ()
) -> BatchHandler:
    decoding = JsonDecoding.from_ddl(schema) if bad else Undecoded()
    return BatchHandler(decoding, target, bad, derived=derived, name=lambda number: f"job-{number}")


def test_the_ingest_job_partitions_by_publish_time_despite_a_field_of_the_same_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Folder names use the publish time even if a field has the same name."""
    target = FileTarget(str(tmp_path / "rows"), "parquet", ("publish_date",))
    bad = FileTarget(str(tmp_path / "bad"), "parquet")
    published = F.lit("2026-03-29T12:00:00Z").cast("timestamp")
    rows = messages(spark, b'{"publish_time": "yesterday"}').withColumn("publish_time", published)
    handler(target, bad, "publish_time STRING", ("publish_date",))(rows, 0)
    found = spark.read.parquet(target.path).collect()
    assert [(row.publish_time, str(row.publish_date)) for row in found] == [
        ("yesterday", "2026-03-29")
    ]


def test_a_repeated_batch_of_the_ingest_job_replaces_the_files_of_its_earlier_attempt(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A repeated batch replaces its own files, also those of a killed run.

    Other batches stay unchanged.
    """
    target = FileTarget(str(tmp_path / "rows"), "parquet")
    bad = FileTarget(str(tmp_path / "bad"), "parquet")
    half_written = tmp_path / "rows" / f"{BATCH_COLUMN}=job-1"
    rows = messages(spark, b'{"id": 1}', b'{"id": 2}', b"bad")
    handler(target, bad)(rows, 0)
    half_written.mkdir()
    (half_written / "part-0000.parquet").write_bytes(b"cut")
    for _ in range(2):
        handler(target, bad)(rows, 1)
    assert [target.may_have(spark, name) for name in ("job-1", "job-2")] == [True, False]
    assert spark.read.parquet(target.path).count() == 4
    assert spark.read.parquet(bad.path).count() == 2


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
        one.check(spark)
        one.check(spark)
    rows = messages(spark, b'{"id": 1}', b'{"id": 2}', b"bad")
    # Left by a run that was killed while it filled the staging table.
    spark.range(3).write.jdbc(url, "orders_job_0")
    first = handler(target, bad)
    assert not target.may_have(spark, "job-0")
    first(rows, 0)
    assert target.may_have(spark, "job-0")
    assert first.totals == Totals(1, 3, 21, 1)
    # Left by a run that was killed after the batch was in the table.
    spark.range(3).write.jdbc(url, "orders_job_0")
    spark.read.jdbc(url, "orders_bad").limit(0).write.jdbc(url, "orders_bad", mode="overwrite")
    bad_again = JdbcTarget(url, "orders_bad_again")
    bad_again.check(spark)
    handler(target, bad_again)(rows, 0)
    handler(target, bad)(rows, 1)
    assert sorted(row.id for row in spark.read.jdbc(url, "orders").collect()) == [1, 1, 2, 2]
    assert spark.read.jdbc(url, "orders_bad_again").count() == 1
    with pytest.raises(Exception, match="ORDERS_JOB_0"):
        spark.read.jdbc(url, "orders_job_0")


def test_a_row_written_twice_by_a_spark_task_is_stored_in_the_database_once(
    spark: SparkSession, derby: Path
) -> None:
    """A row that a task wrote twice is stored once.

    Spark runs a task again if its executor was lost after the work was done. Equal rows of one
    batch stay two rows.
    """
    url = f"jdbc:derby:{derby / 'twice'};create=true"
    target = JdbcTarget(url, "orders")
    target.check(spark)
    rows = messages(spark, b"a", b"b", b"b").select("data").repartition(2)
    target.stage(rows, "job-0")
    staged = spark.read.jdbc(url, "orders_job_0")
    # Collected first, because the rows are written to the same table, with the number of a second
    # copy.
    again = [(*row[:-1], row[-1] + 1) for row in staged.collect()[:2]]
    spark.createDataFrame(again, staged.schema).write.jdbc(url, "orders_job_0", mode="append")
    target.take_in(spark, rows.columns, "job-0")
    table = spark.read.jdbc(url, "orders")
    assert table.columns == ["data"]
    assert sorted(bytes(row.data) for row in table.collect()) == [b"a", b"b", b"b"]


def test_the_ingest_error_for_an_unreachable_database_names_credentials_and_driver(
    spark: SparkSession, derby: Path
) -> None:
    """A missing database is an error that names the source of credentials and driver."""
    for url in (f"jdbc:derby:{derby / 'nowhere'}", "jdbc:nobody:knows"):
        with pytest.raises(IngestError, match=r"cannot connect to t in jdbc:.*PULLSTREAM_JDBC"):
            JdbcTarget(url, "t").check(spark)


def test_the_batch_writer_of_the_ingest_job_refuses_batches_after_it_was_closed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A closed handler refuses the batch, so that Spark does not consider it written."""
    closing = handler(FileTarget(str(tmp_path / "rows"), "json"), None)
    assert closing.close()
    with pytest.raises(Refused):
        closing(messages(spark, b"x"), 0)
    assert closing.totals == Totals()


def test_the_ingest_command_writes_all_messages_to_the_table_and_prints_a_summary(
    spark: SparkSession, broker: Emulator, tmp_path: Path
) -> None:
    """The command ingests all messages and reports the result."""
    publish_json(broker, {"id": 1}, {"id": 2}, b"bad")
    result = pullstream(
        *("ingest", "--subscription", "rows", "--project", "p", "--endpoint", broker.endpoint),
        *("--to", str(tmp_path / "rows"), "--available-now", "--decode", "json"),
        *("--schema", SCHEMA, "--batch-rows", "100", "--option", "drainWaitMs=300", "--json"),
    )
    assert result.code == 0, result.stderr
    told = result.objects[-1]
    assert told.pop("seconds") > 0
    assert told == {
        "batches": 1,
        "messages": 3,
        "bytes": 21,
        "bad": 1,
        "duplicates": 0,
        "to": str(tmp_path / "rows"),
        "badTo": str(tmp_path / "rows-deadletter"),
        "stopped": False,
    }
    assert spark.read.parquet(str(tmp_path / "rows")).count() == 2


def test_ctrl_c_ends_the_ingest_command_after_its_current_batch(
    spark: SparkSession, broker: Emulator, tmp_path: Path
) -> None:
    """Ctrl-C ends the command between two batches.

    It prints a summary, and the exit code is 130, as shells expect.
    """
    publish(broker, 5)
    table = tmp_path / "rows"

    def interrupt() -> None:
        look = threading.Event()
        while not list(table.glob(f"{BATCH_COLUMN}=*/_SUCCESS")):
            look.wait(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    result = pullstream(
        *("ingest", "--subscription", SUBSCRIPTION, "--endpoint", broker.endpoint),
        *("--to", str(table), "--every", "0.1s", "--option", "lingerMs=50"),
    )
    thread.join()
    assert result.code == 130
    assert "Stopping after the current batch" in result.stderr
    # On a slow machine, progress lines come first.
    said = [line for line in result.lines if not line.startswith("batches=")]
    assert said[0].startswith("5 messages in 1 batches, 5 bytes of data, in ")
    assert said[-1] == "stopped between two batches; the next run continues from there"
