"""`readStream.format("pubsub")` on real Spark, with a real broker."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from pullstream import SubscriberClient
from pullstream_emulator import Emulator
from pullstream_protocol.file_lock import FileLock
from tests.subscriber.ended_subscribers import wait_until_unread
from tests.subscriber.spark.processes import source_workers, wait_until_gone
from tests.subscriber.spark.stage import SUBSCRIPTION, Sink, Stage, publish

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def stage(spark: SparkSession, broker: Emulator, tmp_path: Path) -> Stage:
    # py4j also reports queries that fail on purpose.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    return Stage(spark, broker, tmp_path)


def test_a_spark_available_now_query_reads_every_message_with_all_fields_once(stage: Stage) -> None:
    """Each message comes once with attributes, key, time and id, and is acknowledged at the end."""
    ids = publish(stage.broker, 25, attributes={"kind": "order", "é": ""}, ordering_key="k")
    rows: list[Row] = []
    partitions: list[int] = []

    def sink(frame: DataFrame, batch: int) -> None:
        rows.extend(frame.selectExpr("*", "unix_micros(publish_time) AS micros").collect())
        partitions.append(frame.rdd.getNumPartitions())

    query = stage.drain(
        sink,
        includeSubscription="true",
        maxMessagesPerTrigger="10",
        numPartitions="2",
        partitionBy="orderingKey",
    )
    assert [row.message_id for row in rows] == ids
    assert [bytes(row.data) for row in rows] == [b"%d" % number for number in range(25)]
    assert {row.subscription for row in rows} == {SUBSCRIPTION}
    assert {row.ordering_key for row in rows} == {"k"}
    assert rows[0].attributes == {"kind": "order", "é": ""}
    assert rows[0].delivery_attempt is None
    assert rows[0].micros == stage.broker.message(ids[0]).message.publish_time.ToMicroseconds()
    assert partitions == [2, 2, 2]
    assert stage.broker.backlog(SUBSCRIPTION) == 0
    last = query.recentProgress[-1]["sources"][0]
    end = json.loads(last["endOffset"])
    assert (end["plan"], len(end["chain"])) == (3, 32)
    figures = json.loads(last["latestOffset"])
    assert figures["plan"] == 3
    assert figures["leftOut"] == 0


def test_a_failed_batch_of_a_spark_query_is_repeated_with_the_same_number_and_rows(
    stage: Stage,
) -> None:
    """The number and the rows are the same, and nothing was acknowledged before the commit."""
    ids = publish(stage.broker, 30)
    backlogs = []

    def fail_once(batch: int) -> None:
        backlogs.append(stage.broker.backlog(SUBSCRIPTION))
        if batch == 1 and len(backlogs) == 2:
            raise RuntimeError("the sink has its own opinion")

    sink = Sink(after=fail_once)
    with pytest.raises(StreamingQueryException, match="its own opinion"):
        stage.drain(sink, maxMessagesPerTrigger="10")
    stage.drain(sink, maxMessagesPerTrigger="10")
    assert sink.ids == ids
    assert sink.replays == [True]
    # Three batches of ten, at the storing of each: none committed, one, the same again, two.
    assert backlogs[0] == 30
    assert backlogs[1] >= 20
    assert backlogs[2] >= 20
    assert backlogs[3] >= 10
    # The messages of the run that failed come again when their leases have ended. They are known.
    wait_until_unread(stage.broker, SUBSCRIPTION)
    stage.broker.clock.advance(61)
    stage.drain(sink)
    assert sink.ids == ids
    assert stage.broker.backlog(SUBSCRIPTION) == 0


@pytest.mark.parametrize("partition_by", ["rows", "orderingKey"])
def test_a_spark_query_delivers_rows_inside_its_tasks_if_executors_share_no_files(
    stage: Stage, partition_by: str
) -> None:
    """Executors of a cluster do not see the spool."""
    ids = publish(stage.broker, 25)
    partitions: list[int] = []

    def remove_files(rows: DataFrame, batch: int) -> None:
        # The batch is planned by now.
        for path in stage.spool.rglob("*.arrow"):
            path.unlink()
        partitions.append(rows.rdd.getNumPartitions())
        sink(rows, batch)

    sink = Sink()
    stage.drain(remove_files, transport="inline", numPartitions="4", partitionBy=partition_by)
    assert sorted(sink.ids, key=int) == ids
    assert partitions == [4]
    assert stage.broker.backlog(SUBSCRIPTION) == 0


def test_a_spark_batch_planned_before_a_column_change_is_repeated_with_the_new_columns(
    stage: Stage,
) -> None:
    """The batch is repeated with the current columns."""
    publish(stage.broker, 3)
    subscriptions: list[str] = []

    def fail(rows: DataFrame, batch: int) -> None:
        raise RuntimeError("not this time")

    def keep(rows: DataFrame, batch: int) -> None:
        subscriptions.extend(row.subscription for row in rows.collect())

    with pytest.raises(StreamingQueryException, match="not this time"):
        stage.drain(fail)
    stage.drain(keep, includeSubscription="true")
    assert subscriptions == [SUBSCRIPTION] * 3


def test_a_spark_query_repeats_a_batch_whose_commit_spark_has_lost(stage: Stage) -> None:
    """The last committed batch is still there, because the commit log is not synced to the disk."""
    ids = publish(stage.broker, 20)
    sink = Sink()
    stage.drain(sink, maxMessagesPerTrigger="10")
    forget(stage, commits=[1])
    stage.drain(sink)
    assert (sink.ids, sink.replays) == (ids, [True])


def test_a_spark_query_fails_if_spark_repeats_a_batch_that_is_deleted(stage: Stage) -> None:
    """The checkpoint is an old copy. The guide gives the remedy."""
    ids = publish(stage.broker, 30)
    sink = Sink()
    stage.drain(sink, maxMessagesPerTrigger="10")
    commits = stage.folder / "checkpoint" / "commits"
    forget(stage, offsets=[2], commits=[1, 2])
    with pytest.raises(StreamingQueryException, match=r"plan/000000000002.json does not exist"):
        stage.drain(sink)
    shutil.copy(commits / "0", commits / "1")
    ids += publish(stage.broker, 5)
    stage.drain(sink)
    assert (sink.ids, sink.replays) == (ids, [True])


def forget(stage: Stage, **numbers: list[int]) -> None:
    """Delete files of Spark's logs, with their checksums."""
    for log, some in numbers.items():
        for number in some:
            for name in (f"{number}", f".{number}.crc"):
                (stage.folder / "checkpoint" / log / name).unlink(missing_ok=True)


def test_a_checkpoint_of_an_earlier_format_is_refused(stage: Stage) -> None:
    publish(stage.broker, 1)
    stage.drain(Sink())
    path = stage.folder / "checkpoint" / "offsets" / "0"
    *lines, _ = path.read_text().splitlines()
    path.write_text("\n".join([*lines, '{"seq": 1}']))
    (path.parent / ".0.crc").unlink()
    with pytest.raises(StreamingQueryException, match=r"earlier version.*Use an empty checkpoint"):
        stage.drain(Sink())


def test_stopping_a_spark_query_returns_messages_that_are_in_no_batch_to_the_server(
    stage: Stage,
) -> None:
    """No process, lock or unplanned message remains, and committed messages are acknowledged."""
    before = source_workers()
    sink = Sink()
    query = stage.start(sink)
    done = publish(stage.broker, 5)
    query.processAllAvailable()
    (worker,) = source_workers() - before
    query.stop()
    assert wait_until_gone([worker])
    assert sink.ids == done
    FileLock(stage.spool / "LOCK").release()
    assert stage.broker.backlog(SUBSCRIPTION) == 0
    (late,) = publish(stage.broker, 1)
    with SubscriberClient(endpoint=stage.broker.endpoint) as client:
        response = client.pull(subscription=SUBSCRIPTION, max_messages=10, timeout=30)
    assert [each.message.message_id for each in response.received_messages] == [late]


def test_two_spark_queries_on_one_subscription_together_get_each_message_once(
    stage: Stage, tmp_path: Path
) -> None:
    """Each has its own checkpoint and spool, and together they have each message once."""
    other = Stage.__new__(Stage)
    other.__dict__.update(stage.__dict__, folder=tmp_path / "other")
    sinks = [Sink(), Sink()]
    queries = [stage.start(sinks[0]), other.start(sinks[1])]
    ids = publish(stage.broker, 2000)
    stage.broker.wait_until_acked(SUBSCRIPTION, timeout=60)
    for query in queries:
        query.stop()
    assert sorted(sinks[0].ids + sinks[1].ids, key=int) == ids


def test_loading_a_spark_stream_with_an_unknown_option_raises_an_error(stage: Stage) -> None:
    """The error lists all allowed options before a query begins."""
    with pytest.raises(AnalysisException, match=r"'topic' is unknown; the options are .*lingerMs"):
        stage.read(topic="t")


def test_a_missing_subscription_ends_the_spark_query_with_the_servers_error(stage: Stage) -> None:
    """The query ends with the server's error instead of an empty stream."""
    missing = "projects/p/subscriptions/missing"
    with pytest.raises(StreamingQueryException, match=r"errors\.NotFound: 404 "):
        stage.drain(Sink(), subscription=missing)
