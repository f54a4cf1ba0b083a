"""`CREATE TABLE ... USING pubsub` and `CREATE TEMPORARY VIEW ... USING pubsub`, in Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from pullstream import SubscriberClient
from pullstream.spark import BatchRead
from pullstream.spark.local.java_error import reason_of
from pullstream_emulator import Emulator
from tests.subscriber.spark.stage import SUBSCRIPTION, TOPIC, publish, subscribed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark]

OTHER = "projects/p/subscriptions/other"


@pytest.fixture
def options(spark: SparkSession, broker: Emulator, tmp_path: Path) -> Iterator[str]:
    """Yield the options of a table that has 10 messages, and drop the tables of the test."""
    subscribed(broker)
    publish(broker, 10)
    given = {
        "subscription": SUBSCRIPTION,
        "endpoint": broker.endpoint,
        "spoolDir": tmp_path / "spool",
        "drainWaitMs": 300,
    }
    yield "OPTIONS (" + ", ".join(f"{name} '{value}'" for name, value in given.items()) + ")"
    for name in ("messages", "listed"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql("DROP VIEW IF EXISTS latest")


def count(spark: SparkSession, query: str) -> int:
    return int(spark.sql(f"SELECT count(distinct message_id) FROM {query}").collect()[0][0])


def test_a_table_that_is_created_in_sql_keeps_its_options(
    spark: SparkSession, broker: Emulator, options: str, tmp_path: Path
) -> None:
    """Spark passes options at the creation only. Options of a read count more."""
    spark.sql(f"CREATE TABLE messages USING pubsub {options} TBLPROPERTIES ('note' = 'ours')")
    assert count(spark, "messages") == 10
    assert spark.read.table("messages").count() == 10
    with SubscriberClient(endpoint=broker.endpoint) as client:
        client.create_subscription(name=OTHER, topic=TOPIC, ack_deadline_seconds=10)
    publish(broker, 3)
    other = f"WITH (subscription = '{OTHER}', spoolDir = '{tmp_path / 'other'}')"
    assert count(spark, f"messages {other}") == 3
    read = BatchRead(
        subscription=SUBSCRIPTION, endpoint=broker.endpoint, spoolDir=tmp_path / "spool"
    )
    assert read.ack() == 10


def test_a_streaming_query_reads_a_table_that_is_created_in_sql(
    spark: SparkSession, broker: Emulator, options: str, tmp_path: Path
) -> None:
    spark.sql(f"CREATE TABLE messages USING pubsub {options}")
    query = (
        spark.readStream.table("messages")
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "table"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert spark.read.parquet(str(tmp_path / "table")).count() == 10
    assert broker.backlog(SUBSCRIPTION) == 0


def test_a_temporary_view_of_the_source_is_a_batch_read(spark: SparkSession, options: str) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW latest USING pubsub {options}")
    assert count(spark, "latest") == 10


def test_a_table_with_a_list_of_columns_says_why_it_has_no_options(
    spark: SparkSession, options: str, tmp_path: Path
) -> None:
    """Spark stores the list and not the columns of the source, where the options would be."""
    columns = spark.sql(f"CREATE TEMPORARY VIEW latest USING pubsub {options}") and ", ".join(
        f"{field.name} {field.dataType.simpleString()}" for field in spark.table("latest").schema
    )
    spark.sql(f"CREATE TABLE listed ({columns}) USING pubsub {options}")
    with pytest.raises(PySparkException) as refused:
        count(spark, "listed")
    assert reason_of(refused.value).startswith("ValueError: no option reaches the source: Spark")
    rows = spark.readStream.table("listed").writeStream.format("noop")
    query = rows.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(PySparkException) as refused:
        query.awaitTermination()
    assert reason_of(refused.value).startswith("ValueError: no option reaches the source: Spark")


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("OPTIONS (topic 'x')", "option 'topic' is unknown"),
        ("TBLPROPERTIES ('subscription' = 'x')", "option 'subscription' is missing"),
        ("OPTIONS (token 's3cret')", "option 'token' is not allowed for a table"),
        ("OPTIONS (topic 'x') AS SELECT 'a' AS data", "option 'topic' is missing; the sink needs"),
    ],
)
def test_a_wrong_statement_that_creates_a_table_is_refused_with_its_reason(
    spark: SparkSession, statement: str, reason: str
) -> None:
    with pytest.raises(PySparkException) as refused:
        spark.sql(f"CREATE TABLE refused USING pubsub {statement}")
    assert reason_of(refused.value).startswith(f"ValueError: {reason}")
    assert "s3cret" not in str(refused.value)
    assert not spark.catalog.tableExists("refused")
