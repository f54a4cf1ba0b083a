"""`spark.read.format("pubsub")`: pulled once, the same in each action, acknowledged on demand."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pullstream import SubscriberClient
from pullstream.spark import BatchRead
from pullstream.spark.datasource.batch_journal import Journal, pull
from pullstream.spark.datasource.options import BatchOptions, StreamOptions
from pullstream.spark.datasource.stream_reader import PubSubStreamReader
from pullstream.spark.errors import SpoolError
from pullstream_emulator import Emulator
from pullstream_protocol.errors import NotFound
from tests.subscriber.spark.stage import SUBSCRIPTION, publish, subscribed

Options = dict[str, str]


def options(broker: Emulator, folder: Path, **more: str) -> Options:
    return {
        "subscription": SUBSCRIPTION,
        "endpoint": broker.endpoint,
        "spoolDir": str(folder / "read"),
        "drainWaitMs": "300",
        **more,
    }


@pytest.fixture
def given(broker: Emulator, tmp_path: Path) -> Options:
    """Return the options of a read of an existing subscription."""
    subscribed(broker)
    return options(broker, tmp_path)


def rows(given: Options) -> list[str]:
    """Return the ids of the rows that Spark would read now."""
    segments = pull(BatchOptions.parse(given, files_are_shared=True))
    batches = [batch for segment in segments for batch in segment.read()]
    return [one for batch in batches for one in batch.column("message_id").to_pylist()]


@pytest.mark.spark
def test_every_action_on_one_spark_batch_read_gets_the_same_rows(
    spark: SparkSession, broker: Emulator, tmp_path: Path
) -> None:
    """Each action sees the same rows, and they are acknowledged only on request."""
    subscribed(broker)
    ids = publish(broker, 30)
    read = BatchRead(**options(broker, tmp_path, maxMessages="20", numPartitions="2"))
    frame = read.load(spark)
    assert frame.count() == 20
    assert [row.message_id for row in frame.orderBy("publish_time", "message_id").collect()]
    assert frame.filter("cast(string(data) as int) < 20").count() == 20
    assert (read.rows, broker.backlog(SUBSCRIPTION)) == (20, 30)
    assert read.ack() == 20
    assert (read.rows, broker.backlog(SUBSCRIPTION)) == (0, 10)
    rest = read.load(spark).select("message_id").collect()
    assert sorted(int(row.message_id) for row in rest) == [int(one) for one in ids[20:]]


def test_messages_of_a_spark_batch_read_stay_in_the_backlog_until_the_user_acks_them(
    broker: Emulator, given: Options
) -> None:
    """Another process gets them as well, such as the next try of a killed job."""
    ids = publish(broker, 5)
    assert rows(given) == ids
    publish(broker, 5)
    assert rows(given) == ids
    assert BatchRead(**given).ack() == 5
    assert len(rows(given)) == 5
    assert broker.backlog(SUBSCRIPTION) == 5


def test_a_spark_batch_read_omits_redelivered_messages_that_an_earlier_read_has_acked(
    broker: Emulator, given: Options
) -> None:
    """The lease of such a row ended before the job was done, and another reader had it."""
    publish(broker, 3)
    assert len(rows(given)) == 3
    broker.clock.advance(700)
    with SubscriberClient(endpoint=broker.endpoint) as another:
        assert len(another.pull(subscription=SUBSCRIPTION, max_messages=3).received_messages) == 3
    BatchRead(**given).ack()
    assert broker.backlog(SUBSCRIPTION) == 3
    broker.clock.advance(20)
    (late,) = publish(broker, 1)
    assert rows(given) == [late]
    assert broker.backlog(SUBSCRIPTION) == 1


def test_the_next_spark_batch_read_sends_the_acks_that_a_crash_interrupted(
    broker: Emulator, given: Options
) -> None:
    """The journal says that the rows are committed, so the next read acknowledges them."""
    publish(broker, 4)
    assert len(rows(given)) == 4
    journal = Journal(BatchOptions.parse(given, files_are_shared=True).settings)
    journal.write(journal.content()._replace(committed=1, pending=[], is_over=True))
    assert rows(given) == []
    broker.wait_until_acked(SUBSCRIPTION)


def test_a_spark_batch_read_of_an_empty_subscription_has_no_rows(given: Options) -> None:
    """There are no rows, and nothing to acknowledge."""
    assert rows(given) == []
    assert BatchRead(**given).ack() == 0


def test_a_spark_batch_read_pulls_no_more_messages_than_it_returns_as_rows(
    broker: Emulator, tmp_path: Path
) -> None:
    """No more messages are pulled than are read.

    A returned message would count as a delivery attempt, of which a dead-letter policy allows only
    some. Unpulled messages are free for another reader at once.
    """
    subscribed(broker)
    publish(broker, 50)
    assert len(rows(options(broker, tmp_path, maxMessages="20"))) == 20
    assert len(broker.history.deliveries()) == 20
    assert len(rows(options(broker, tmp_path, spoolDir=str(tmp_path / "other")))) == 30
    assert broker.history.nacks() == []


def test_a_spark_batch_read_that_reaches_its_message_limit_logs_the_limit(
    broker: Emulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The property `is_all` is about the last read, and a log line reports the limit."""
    subscribed(broker)
    publish(broker, 15)
    given = options(broker, tmp_path, maxMessages="10")
    read = BatchRead(**given)
    assert not read.is_all
    for count, is_all in ((10, False), (5, True), (0, True)):
        caplog.clear()
        assert len(rows(given)) == count
        assert read.is_all == is_all
        assert ("reached a limit (maxMessages 10" in caplog.text) == (not is_all)
        assert read.ack() == count
        assert read.is_all == is_all


@pytest.fixture(params=[True, False])
def spark_that_may_plan_again(
    spark: SparkSession, request: pytest.FixtureRequest
) -> Iterator[SparkSession]:
    """Yield a session with and without filter pushdown.

    With it, Spark plans each action on a DataFrame; without it, only the first.
    """
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, request.param)
    yield spark
    spark.conf.unset(name)


@pytest.mark.spark
def test_a_data_frame_of_a_spark_batch_read_cannot_be_used_after_its_rows_were_acked(
    spark_that_may_plan_again: SparkSession, broker: Emulator, tmp_path: Path
) -> None:
    """A new plan would have other rows, which another `ack` would lose."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    spark = spark_that_may_plan_again
    subscribed(broker)
    read = BatchRead(**options(broker, tmp_path))
    empty = read.load(spark)
    assert empty.count() == 0
    publish(broker, 3)
    assert (empty.count(), read.ack()) == (0, 0)
    frame = read.load(spark)
    assert (frame.count(), read.ack()) == (3, 3)
    publish(broker, 2)
    with pytest.raises(Exception, match=r"were acknowledged.*load\(\)"):
        frame.count()
    assert (read.rows, read.ack(), broker.backlog(SUBSCRIPTION)) == (0, 0, 2)
    assert read.load(spark).count() == 2


def test_a_spark_batch_read_refuses_the_spool_folder_of_a_streaming_query(
    broker: Emulator, tmp_path: Path
) -> None:
    """The read and the stream would mistake each other's batches for their own."""
    (tmp_path / "read").mkdir()
    (tmp_path / "read" / "meta.json").write_text("{}")
    with pytest.raises(SpoolError, match="belongs to a streaming query"):
        rows(options(broker, tmp_path))


def test_a_spark_streaming_query_refuses_the_spool_folder_of_a_batch_read(given: Options) -> None:
    """A stream refuses the folder as well."""
    assert rows(given) == []
    reader = PubSubStreamReader(StreamOptions.parse(given, files_are_shared=True))
    with pytest.raises(SpoolError, match="belongs to a batch read"):
        reader.latestOffset({"seq": 0}, ReadAllAvailable())


def test_a_spark_batch_read_of_a_missing_subscription_raises_instead_of_returning_no_rows(
    broker: Emulator, tmp_path: Path
) -> None:
    """The read raises instead of returning no rows."""
    with pytest.raises(NotFound):
        rows(options(broker, tmp_path))


@pytest.mark.parametrize("text", ["{", '{"format": 1}', '{"format": 1, "pending": 3}', "[]"])
def test_a_spark_batch_read_with_a_damaged_journal_raises(
    broker: Emulator, tmp_path: Path, text: str
) -> None:
    """An empty journal instead would pull the rows and return them again."""
    (tmp_path / "read").mkdir()
    (tmp_path / "read" / "read.json").write_text(text)
    with pytest.raises(SpoolError, match=r"read\.json is damaged"):
        rows(options(broker, tmp_path))


def test_two_concurrent_actions_on_a_spark_batch_read_get_the_same_rows(
    broker: Emulator, given: Options
) -> None:
    """One action pulls and the other waits for it, and neither removes the other's rows."""
    ids = publish(broker, 10)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(rows, [given] * 4)) == [ids] * 4
