"""A source whose spool is in a bucket."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from pullstream.spark.errors import SpoolError
from pullstream.spark.protocol.coordinator import START
from pullstream.spark.receiving.outage_note import noted_outage
from pullstream.spark.session.source_session import SourceSession
from pullstream.spark.settings import IngestSettings
from pullstream_emulator import Emulator
from pullstream_protocol.errors import Unavailable
from tests.subscriber.spark.protocol.flaky_proxy import flaky_proxy
from tests.subscriber.spark.session.world import SUBSCRIPTION, make_subscription, publish
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

Options = dict[str, str]


def settings(broker: Emulator, storage: Options, notes: Path) -> IngestSettings:
    return IngestSettings(
        subscription=SUBSCRIPTION,
        spool_dir=f"s3://lake/{uuid.uuid4().hex}",
        storage=storage,
        endpoint=broker.endpoint,
        idle_wait=TIMEOUT,
        linger=0.1,
        notes_dir=str(notes),
    )


def test_a_source_with_its_spool_in_a_bucket_notes_an_outage_in_another_folder(
    broker: Emulator, s3: Options, tmp_path: Path
) -> None:
    """Processes that watch the job look there."""
    make_subscription(broker)
    publish(broker, 3)
    with SourceSession(settings(broker, s3, tmp_path)) as session:
        first = session.latest(START)
        assert session.plan(START, first).parts[0].taken == 3
        assert noted_outage(tmp_path) is None
        broker.faults.error("StreamingPull", Unavailable("gone"))
        broker.faults.abort_streams(Unavailable("gone"))
        eventually(lambda: noted_outage(tmp_path) is not None)
        broker.faults.clear()
        publish(broker, 1)
        assert session.latest(first).plan == first.plan + 1
        eventually(lambda: noted_outage(tmp_path) is None)


def test_a_source_refuses_a_bucket_that_ignores_conditions_before_it_receives(
    broker: Emulator, s3: Options, tmp_path: Path
) -> None:
    """Two queries on one spool would write the same plan."""
    make_subscription(broker)
    publish(broker, 3)
    with flaky_proxy(s3["aws_endpoint"]) as proxy:
        proxy.ignored_headers = {"if-none-match"}
        storage = {**s3, "aws_endpoint": proxy.url}
        with (
            SourceSession(settings(broker, storage, tmp_path)) as session,
            pytest.raises(SpoolError, match="the storage cannot hold a spool"),
        ):
            session.latest(START)
    assert broker.history.deliveries() == []


def test_a_source_reports_a_missing_bucket_in_one_line(
    broker: Emulator, s3: Options, tmp_path: Path
) -> None:
    make_subscription(broker)
    given = settings(broker, s3, tmp_path)
    missing = IngestSettings(
        subscription=SUBSCRIPTION,
        spool_dir="s3://nowhere/spool",
        storage=given.storage,
        endpoint=broker.endpoint,
    )
    with (
        SourceSession(missing) as session,
        pytest.raises(SpoolError, match=r"the bucket does not exist .*create it") as error,
    ):
        session.latest(START)
    assert "\n" not in str(error.value)
