"""Receivers as tasks of a session of Spark Connect."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.completed import run_command
from tests.optional_tools import missing
from tests.subscriber.spark.receiver_processes.world import SUBSCRIPTION, World

# Packages that Spark Connect needs besides pyspark and grpcio.
PACKAGES = ("pandas", "grpc_status", "zstandard")


@pytest.mark.slow
@pytest.mark.spark
def test_receivers_run_as_tasks_of_spark_connect(world: World, tmp_path: Path) -> None:
    """They are counted against the cores of its local master."""
    absent = [name for name in PACKAGES if find_spec(name) is None]
    if absent:
        missing("spark-connect", f"Spark Connect needs {', '.join(absent)}")
    world.publish(*[b"x"] * 100)
    driver = Path(__file__).with_name("connect_driver.py")
    arguments = (world.broker.endpoint, tmp_path, SUBSCRIPTION)
    result = run_command([sys.executable, driver, *arguments])
    assert result.returncode == 0, result.stderr
    refused, rows = result.stdout.splitlines()[-2:]
    assert refused.startswith("2 receivers need a core each, and the query one more")
    assert rows == "100"
