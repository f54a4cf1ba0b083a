"""A streaming query whose spool is in a bucket, and whose checkpoint is on the driver's disk."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pullstream_emulator import Emulator
from tests.subscriber.command_line import pullstream
from tests.subscriber.ended_subscribers import wait_until_unread
from tests.subscriber.spark.stage import SUBSCRIPTION, Sink, Stage, publish

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("acknowledge", ["committed", "stored"])
@pytest.mark.parametrize("transport", ["auto", "inline"])
def test_a_query_with_its_spool_in_a_bucket_reads_each_message_once(
    spark: SparkSession,
    broker: Emulator,
    tmp_path: Path,
    s3: dict[str, str],
    acknowledge: str,
    transport: str,
) -> None:
    """Also a query that starts again, after a batch has failed."""
    stage = Stage(spark, broker, tmp_path)
    options = {
        "spoolDir": f"s3://lake/{uuid.uuid4().hex}/spool",
        "maxMessagesPerTrigger": "40",
        "acknowledge": acknowledge,
        "transport": transport,
        **{f"storage.{name}": text for name, text in s3.items()},
    }
    ids = publish(broker, 100)
    sink = Sink(after=fail_in(1))
    with pytest.raises(Exception, match="the sink is full"):
        stage.drain(sink, **options)
    sink.after = lambda batch: None
    stage.drain(sink, **options)
    # Messages that the failed query has received come again, and are left out.
    wait_until_unread(broker, SUBSCRIPTION)
    broker.clock.advance(700)
    ids += publish(broker, 20)
    stage.drain(sink, **options)
    assert sorted(sink.ids) == sorted(ids)
    assert sink.replays == [True]
    broker.wait_until_acked(SUBSCRIPTION)
    assert not stage.spool.exists()
    # No folder is named `s3:`.
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


@pytest.mark.parametrize(("kind", "scheme"), [("azure", "az"), ("gcs", "gs")])
def test_a_query_with_its_spool_in_another_kind_of_bucket_reads_each_message_once(
    spark: SparkSession,
    broker: Emulator,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    kind: str,
    scheme: str,
) -> None:
    storage: dict[str, str] = request.getfixturevalue(kind)
    stage, sink = Stage(spark, broker, tmp_path), Sink()
    options = {
        "spoolDir": f"{scheme}://lake/{uuid.uuid4().hex}/spool",
        "maxMessagesPerTrigger": "40",
        **{f"storageSecret.{name}": text for name, text in storage.items()},
    }
    ids = publish(broker, 100)
    stage.drain(sink, **options)
    ids += publish(broker, 20)
    stage.drain(sink, **options)
    assert sorted(sink.ids) == sorted(ids)
    broker.wait_until_acked(SUBSCRIPTION)


def test_a_query_reads_on_without_a_damaged_segment_that_was_skipped(
    spark: SparkSession, broker: Emulator, tmp_path: Path
) -> None:
    """The error has the command. The messages of the segment come again."""
    stage, sink = Stage(spark, broker, tmp_path), Sink(after=fail_in(0))
    ids = publish(broker, 30)
    with pytest.raises(Exception, match="the sink is full"):
        stage.drain(sink)
    sink.batches.clear()
    sink.after = lambda batch: None
    [segment] = stage.spool.glob("seg/*/*.arrow")
    segment.write_bytes(segment.read_bytes()[:500])
    with pytest.raises(Exception, match="is damaged") as error:
        stage.drain(sink)
    command = re.search(r"pullstream (spool skip 1 .* --spool \S+)", str(error.value))
    assert command is not None
    assert ids[0] in str(error.value)
    result = pullstream(*command[1].split())
    assert "30 messages come again" in result.lines[0], result.stderr
    wait_until_unread(broker, SUBSCRIPTION)
    broker.clock.advance(700)
    stage.drain(sink)
    assert sorted(sink.ids) == sorted(ids)
    broker.wait_until_acked(SUBSCRIPTION)


def fail_in(number: int) -> Callable[[int], None]:
    def fail(batch: int) -> None:
        if batch == number:
            raise OSError("the sink is full")

    return fail
