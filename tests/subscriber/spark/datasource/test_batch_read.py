"""`spark.read.format("pubsub")`: pulled once, the same in each action, acknowledged on demand."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pullstream import SubscriberClient
from pullstream.spark import BatchRead
from pullstream.spark.datasource.batch_journal import Journal
from pullstream.spark.datasource.batch_pull import BatchSpool
from pullstream.spark.datasource.options import BatchOptions, StreamOptions
from pullstream.spark.datasource.stream_reader import PubSubStreamReader
from pullstream.spark.errors import SpoolError
from pullstream.spark.protocol.coordinator import START, Coordinator, CoordinatorSettings
from pullstream.spark.protocol.storage import run
from pullstream.spark.stores import LocalFolder
from pullstream_emulator import Emulator
from pullstream_protocol.errors import InvalidArgument, NotFound
from tests.subscriber.ended_subscribers import wait_until_unread
from tests.subscriber.spark.engine import Killed
from tests.subscriber.spark.protocol.batch_rows import rows_of
from tests.subscriber.spark.protocol.flaky_proxy import flaky_proxy
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


def spool(given: Options) -> BatchSpool:
    return BatchSpool(BatchOptions.parse(given, files_are_shared=True).settings)


def die_at(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    def die(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(owner, name, die)


def rows(given: Options) -> list[str]:
    """Return the ids of the rows that Spark would read now."""
    read = spool(given)
    plan = read.pull()
    if plan is None:
        return []
    ids: list[str] = rows_of(plan, [read.store.get(part.segment.path) for part in plan.parts])[
        "message_id"
    ].to_pylist()
    return ids


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
    wait_until_unread(broker, SUBSCRIPTION)
    broker.clock.advance(700)
    with SubscriberClient(endpoint=broker.endpoint) as another:
        assert len(another.pull(subscription=SUBSCRIPTION, max_messages=3).received_messages) == 3
    BatchRead(**given).ack()
    assert broker.backlog(SUBSCRIPTION) == 3
    broker.clock.advance(20)
    (late,) = publish(broker, 1)
    assert rows(given) == [late]
    assert BatchRead(**given).ack() == 1
    assert broker.backlog(SUBSCRIPTION) == 0


def test_a_spark_batch_read_acknowledges_redelivered_messages_also_if_there_are_no_others(
    broker: Emulator, given: Options
) -> None:
    """Then there are no rows, so nobody calls `ack`."""
    publish(broker, 3)
    assert len(rows(given)) == 3
    broker.faults.error("Acknowledge", InvalidArgument("no"), resource=SUBSCRIPTION)
    assert BatchRead(**given).ack() == 3
    broker.faults.clear()
    wait_until_unread(broker, SUBSCRIPTION)
    broker.clock.advance(700)
    assert rows(given) == []
    assert BatchRead(**given).rows == 0
    broker.wait_until_acked(SUBSCRIPTION)


def test_the_next_spark_batch_read_sends_the_acks_that_a_crash_interrupted(
    broker: Emulator, given: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal says that the rows are committed, so the next read acknowledges them."""
    publish(broker, 4)
    assert len(rows(given)) == 4
    die_at(monkeypatch, BatchSpool, "_settle")
    with pytest.raises(Killed):
        BatchRead(**given).ack()
    monkeypatch.undo()
    assert (BatchRead(**given).rows, broker.backlog(SUBSCRIPTION)) == (0, 4)
    assert rows(given) == []
    broker.wait_until_acked(SUBSCRIPTION)


@pytest.mark.parametrize(
    ("owner", "name"),
    [(Journal, "write_leases"), (Coordinator, "_check_plan"), (BatchSpool, "_plan")],
)
def test_the_rows_of_a_spark_batch_read_that_was_killed_while_it_pulled_are_in_the_next_one(
    broker: Emulator, given: Options, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    """They are in the spool, and no delivery of them makes another row."""
    ids = publish(broker, 4)
    die_at(monkeypatch, owner, name)
    with pytest.raises(Killed):
        rows(given)
    monkeypatch.undo()
    assert rows(given) == ids
    assert BatchRead(**given).ack() == 4
    wait_until_unread(broker, SUBSCRIPTION)
    broker.clock.advance(700)
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
    """The read would take the batches of the stream."""
    given = options(broker, tmp_path)
    store = LocalFolder(tmp_path / "read")
    run(Coordinator(CoordinatorSettings(subscription="s"), elapsed=float).open(START), store)
    with pytest.raises(SpoolError, match="belongs to a streaming query"):
        rows(given)


def test_a_spark_batch_read_refuses_a_spool_of_an_earlier_version(
    broker: Emulator, tmp_path: Path
) -> None:
    (tmp_path / "read").mkdir()
    (tmp_path / "read" / "meta.json").write_text("{}")
    with pytest.raises(SpoolError, match="has the format of an earlier version"):
        rows(options(broker, tmp_path))


def test_a_spark_streaming_query_refuses_the_spool_folder_of_a_batch_read(given: Options) -> None:
    """A stream refuses the folder as well."""
    assert rows(given) == []
    reader = PubSubStreamReader(StreamOptions.parse(given, files_are_shared=True))
    with pytest.raises(SpoolError, match="belongs to a batch read"):
        reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


def test_a_spark_batch_read_of_a_missing_subscription_raises_instead_of_returning_no_rows(
    broker: Emulator, tmp_path: Path
) -> None:
    """The read raises instead of returning no rows."""
    with pytest.raises(NotFound):
        rows(options(broker, tmp_path))


@pytest.mark.parametrize("text", ["{", '{"format": 2}', '{"format": 2, "planned": 3}', "[]"])
def test_a_spark_batch_read_with_a_damaged_journal_raises(
    broker: Emulator, tmp_path: Path, text: str
) -> None:
    """An empty journal instead would pull the rows and return them again."""
    (tmp_path / "read").mkdir()
    (tmp_path / "read" / "read.json").write_text(text)
    with pytest.raises(SpoolError, match=r"read\.json of the spool .*/read is damaged"):
        rows(options(broker, tmp_path))


def test_a_spark_batch_read_refuses_the_journal_of_another_version(
    broker: Emulator, tmp_path: Path
) -> None:
    (tmp_path / "read").mkdir()
    (tmp_path / "read" / "read.json").write_text('{"format": 1}')
    with pytest.raises(SpoolError, match="format 1 is unknown; this version supports 2"):
        rows(options(broker, tmp_path))


def test_two_concurrent_actions_on_a_spark_batch_read_get_the_same_rows(
    broker: Emulator, given: Options
) -> None:
    """One action pulls and the other waits for it, and neither removes the other's rows."""
    ids = publish(broker, 10)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(rows, [given] * 4)) == [ids] * 4


@pytest.fixture
def in_bucket(broker: Emulator, tmp_path: Path, s3: Options) -> Options:
    """Return the options of a read whose spool is in a bucket."""
    subscribed(broker)
    storage = {f"storage.{name}": text for name, text in s3.items()}
    return options(broker, tmp_path, spoolDir=f"s3://lake/{uuid.uuid4().hex}", **storage)


def test_a_spark_batch_read_keeps_its_rows_in_a_bucket(
    broker: Emulator, in_bucket: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a process dies while it pulls, or before it acknowledges."""
    ids = publish(broker, 4)
    die_at(monkeypatch, BatchSpool, "_plan")
    with pytest.raises(Killed):
        rows(in_bucket)
    monkeypatch.undo()
    assert rows(in_bucket) == ids
    die_at(monkeypatch, BatchSpool, "_settle")
    with pytest.raises(Killed):
        BatchRead(**in_bucket).ack()
    monkeypatch.undo()
    late = publish(broker, 2)
    assert rows(in_bucket) == late
    assert broker.backlog(SUBSCRIPTION) == 2
    assert BatchRead(**in_bucket).ack() == 2


def test_two_concurrent_actions_on_a_spark_batch_read_in_a_bucket_get_the_same_rows(
    broker: Emulator, in_bucket: Options
) -> None:
    ids = publish(broker, 10)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(rows, [in_bucket] * 4)) == [ids] * 4


@pytest.mark.spark
def test_a_data_frame_of_a_spark_batch_read_has_its_rows_from_a_bucket(
    spark: SparkSession, broker: Emulator, in_bucket: Options
) -> None:
    ids = publish(broker, 30)
    read = BatchRead(**in_bucket)
    frame = read.load(spark)
    assert sorted(int(row.message_id) for row in frame.collect()) == [int(one) for one in ids]
    assert (frame.count(), read.ack(), broker.backlog(SUBSCRIPTION)) == (30, 30, 0)


def test_a_spark_batch_read_refuses_a_bucket_that_ignores_conditions(
    in_bucket: Options, s3: Options
) -> None:
    """Two writers would replace each other's files."""
    with flaky_proxy(s3["aws_endpoint"]) as proxy:
        proxy.ignored_headers = {"if-none-match"}
        with pytest.raises(SpoolError, match="the storage cannot hold a spool"):
            rows({**in_bucket, "storage.aws_endpoint": proxy.url})


def test_a_spark_batch_read_reports_a_missing_bucket_in_one_line(in_bucket: Options) -> None:
    with pytest.raises(SpoolError, match=r"the bucket does not exist .*create it") as error:
        rows({**in_bucket, "spoolDir": "s3://nowhere/spool"})
    assert "\n" not in str(error.value)
