"""What `local_session` sets, beside the Java that it finds."""

from __future__ import annotations

import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from subscriber.spark import local_session, register
from subscriber.spark.session_builder import _unix_sockets
from subscriber.spark.source import LocalPubSubDataSource, PubSubDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_running_session_is_taken_on_any_thread_as_it_is(spark: SparkSession) -> None:
    """Spark has an active session for each thread. To another's, none of our settings belong."""
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    found: list[SparkSession] = []

    def work() -> None:
        found.append(local_session("local[7]", config={"spark.sql.shuffle.partitions": "3"}))

    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert found == [spark]
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
        assert spark.conf.get("spark.sql.shuffle.partitions") == "1"
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize(
    ("context", "setting", "source"),
    [
        ("local[2]", "spark://host:7077", LocalPubSubDataSource),
        ("spark://host:7077", "local[2]", PubSubDataSource),
        # Spark Connect has no context.
        (None, "local[2]", LocalPubSubDataSource),
        (None, None, PubSubDataSource),
    ],
)
def test_where_executors_are_is_told_by_what_runs(
    context: str | None, setting: str | None, source: type[PubSubDataSource]
) -> None:
    """Not by a setting, which a session may have from elsewhere."""
    session = Mock()
    session.conf.get.return_value = setting
    if context is None:
        del session.sparkContext
    else:
        session.sparkContext.master = context
    register(session)
    session.dataSource.register.assert_called_once_with(source)


def test_java_and_its_workers_talk_by_files_that_are_sockets(spark: SparkSession) -> None:
    """By TCP each task stands still for 40 ms."""
    folder = Path(spark.conf.get("spark.python.unix.domain.socket.dir") or "")
    assert spark.sparkContext.parallelize([1, 2], 1).map(lambda one: one + 1).collect() == [2, 3]
    assert any(stat.S_ISSOCK(path.stat().st_mode) for path in folder.glob(".*.sock"))


@pytest.mark.parametrize(("length", "used"), [(60, True), (61, False)])
def test_no_socket_has_a_longer_path_than_a_system_takes(length: int, used: bool) -> None:
    assert bool(_unix_sockets("/" + "t" * (length - 1))) is used
