"""Spark's part of the suite: its tests share sessions, because a start takes many seconds."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pullstream_emulator import Emulator
from tests.quick_java import QUICK_JAVA
from tests.subscriber.spark.object_stores import azure, gcs, s3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Fixtures.
__all__ = ["azure", "gcs", "s3"]

# PySpark needs Python 3.11. If it must be installed but is not, the imports fail with an error.
if tuple(sys.version_info) < (3, 11) or (
    importlib.util.find_spec("pyspark") is None
    and "spark" not in os.environ.get("PULLSTREAM_REQUIRE", "")
):
    collect_ignore_glob = ["*"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield a local session with two cores, which is never stopped between tests."""
    from pullstream.spark import local_session

    session = local_session(
        "local[2]",
        config={
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.driver.extraJavaOptions": QUICK_JAVA,
            # As in commands.
            "spark.python.sql.dataFrameDebugging.enabled": "false",
        },
    )
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _plain_logs() -> Iterator[None]:
    """Remove the loggers that pyspark makes, for an error or for Spark Connect.

    pytest adds its handler to each logger that does not propagate, and these give it a formatter
    that fails on some records of later tests.
    """
    yield
    from pyspark.logger import PySparkLogger

    known = logging.Logger.manager.loggerDict
    for name in [name for name, one in known.items() if isinstance(one, PySparkLogger)]:
        del known[name]


@pytest.fixture
def broker() -> Iterator[Emulator]:
    with Emulator() as emulator:
        yield emulator


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


# Before pytest-xdist reads the groups, also if this folder is an argument of pytest.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests that use Spark in three processes when xdist distributes the suite.

    Two have a session each, and about the same work: one with more work would run alone at the end,
    and leave a processor idle. In the third one, tests start programs with Spark, for which they
    wait.
    """
    here = Path(__file__).parent
    names = ("session", "protocol", "receiving", "receiver_processes", "tables")
    without_spark = {here / name for name in names}
    jobs = {
        here / "tables" / "test_bucket_jobs.py",
        here / "receiver_processes" / "test_spark_job.py",
        here / "receiver_processes" / "test_spark_connect.py",
    }
    second = {
        here / "datasource",
        here / "ingest" / "test_decoding.py",
        here / "ingest" / "test_runner.py",
        here / "tables" / "test_bucket_jobs.py",
    }
    for item in items:
        uses_spark = item.path in jobs or without_spark.isdisjoint(item.path.parents)
        if here not in item.path.parents or not uses_spark:
            continue
        if "spark" not in getattr(item, "fixturenames", ()):
            group = "programs with Spark"
        elif second.isdisjoint((item.path, *item.path.parents)):
            group = "first Spark session"
        else:
            group = "second Spark session"
        item.add_marker(pytest.mark.xdist_group(group))
