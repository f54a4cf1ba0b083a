"""The ingestion job with receivers that run as tasks of Spark."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pullstream import SubscriberClient
from pullstream.spark import IngestReport
from pullstream.spark.errors import FailureCause, IngestError
from pullstream.spark.ingest.report import Receivers
from pullstream_emulator import Emulator
from tests.subscriber.ended_subscribers import wait_until_unread
from tests.subscriber.spark.processes import receiver_programs, wait_until_gone
from tests.subscriber.spark.stage import SUBSCRIPTION, Ingest, ingest_into, publish, subscribed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def subscription(broker: Emulator) -> None:
    subscribed(broker)


@pytest.fixture
def ingest(spark: SparkSession, broker: Emulator, tmp_path: Path) -> Ingest:
    """Return a function that runs a job with one receiver and writes to the folder `rows`."""
    return ingest_into(tmp_path / "rows", spark, broker, receivers=1)


def ids(spark: SparkSession, report: IngestReport) -> list[str]:
    return sorted(row.message_id for row in spark.read.parquet(report.to).collect())


@pytest.mark.parametrize("acknowledge", ["committed", "stored"])
def test_an_available_now_job_ends_when_its_receivers_have_emptied_the_subscription(
    spark: SparkSession, broker: Emulator, ingest: Ingest, acknowledge: str
) -> None:
    """All messages are in the table, once, and all are acknowledged."""
    published = publish(broker, 300)
    told: list[IngestReport] = []
    options = {"acknowledge": acknowledge, "maxMessagesPerTrigger": "100"}
    report = ingest(watch=told.append, available_now=True, options=options)
    assert ids(spark, report) == sorted(published)
    assert broker.backlog(SUBSCRIPTION) == 0
    assert not report.stopped
    assert report.totals.rows == 300
    assert {one.receivers for one in told} <= {None, Receivers(1, 1, 0), Receivers(1, 0, 0)}
    again = ingest(available_now=True, options=options)
    assert again.totals.rows == 0


def test_a_stopped_job_with_receivers_continues_in_the_next_run(
    spark: SparkSession, broker: Emulator, ingest: Ingest
) -> None:
    """No message is lost, and none is there twice."""
    published = publish(broker, 100)
    stop = threading.Event()

    def watch(report: IngestReport) -> None:
        if report.totals.rows:
            stop.set()

    first = ingest(stop=stop, watch=watch)
    assert first.stopped
    published += publish(broker, 50)
    assert wait_until_gone(receiver_programs())
    # The leases of the first run are over.
    wait_until_unread(broker, SUBSCRIPTION)
    broker.clock.advance(61)
    second = ingest(available_now=True)
    assert ids(spark, second) == sorted(published)
    assert broker.backlog(SUBSCRIPTION) == 0


def test_a_job_fails_with_its_receivers(broker: Emulator, ingest: Ingest) -> None:
    """The query is stopped."""
    deleted: list[str] = []

    def watch(report: IngestReport) -> None:
        if report.totals.rows and not deleted:
            deleted.append(SUBSCRIPTION)
            with SubscriberClient(endpoint=broker.endpoint) as client:
                client.delete_subscription(subscription=SUBSCRIPTION)

    publish(broker, 1)
    with pytest.raises(IngestError, match="the receivers have failed: NotFound: ") as failure:
        ingest(watch=watch)
    assert failure.value.cause is FailureCause.SOURCE


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"receivers": 0}, "receivers is 0; it must be at least 1"),
        ({"receivers": 2}, "2 receivers need a core each.* has 2; .* 3 cores"),
        (
            {"receivers": 2, "options": {"partitionBy": "orderingKey"}},
            "partitionBy is orderingKey and there are 2 receivers",
        ),
        ({"receivers": 1, "options": {"receivers": "outside"}}, "exclude each other"),
    ],
)
def test_receivers_that_do_not_fit_are_refused_before_their_start(
    broker: Emulator, ingest: Ingest, arguments: dict[str, Any], error: str
) -> None:
    """No message is delivered."""
    publish(broker, 1)
    with pytest.raises(ValueError, match=error):
        ingest(**arguments)
    assert broker.history.deliveries() == []
