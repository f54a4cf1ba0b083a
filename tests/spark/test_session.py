"""What `local_session` sets, beside the Java that it finds."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from subscriber.spark.session_builder import _unix_sockets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_java_and_its_workers_talk_by_files_that_are_sockets(spark: SparkSession) -> None:
    """By TCP each task stands still for 40 ms."""
    folder = Path(spark.conf.get("spark.python.unix.domain.socket.dir") or "")
    assert spark.sparkContext.parallelize([1, 2], 1).map(lambda one: one + 1).collect() == [2, 3]
    assert any(stat.S_ISSOCK(path.stat().st_mode) for path in folder.glob(".*.sock"))


@pytest.mark.parametrize(("length", "used"), [(60, True), (61, False)])
def test_no_socket_has_a_longer_path_than_a_system_takes(length: int, used: bool) -> None:
    assert bool(_unix_sockets("/" + "t" * (length - 1))) is used
