"""Spark's part of the suite: one session for all of it, because its start takes many seconds."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from emulator import Emulator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# PySpark wants Python 3.11. Where it is not installed, but must be, the imports fail and say so.
if tuple(sys.version_info) < (3, 11) or (
    importlib.util.find_spec("pyspark") is None
    and "spark" not in os.environ.get("PULLSTREAM_REQUIRE", "")
):
    collect_ignore_glob = ["*"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with two cores, which is never stopped between tests."""
    from subscriber.spark import local_session

    session = local_session(
        "local[2]",
        config={
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            # Short-lived: the quick compiler alone starts earlier than it would pay off.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )
    yield session
    session.stop()


@pytest.fixture
def broker() -> Iterator[Emulator]:
    with Emulator() as emulator:
        yield emulator


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that uses the session goes to one process, when several share the suite (xdist)."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and here / "core" not in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("spark"))
