"""The wheel as a zip, without other files of ours, on a cluster with its own processes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pyspark
import pytest

from pullstream import TopicAdminClient
from pullstream.spark.local.java import ensure_java
from pullstream_emulator import Emulator
from tests.quick_java import quick_java
from tests.typing.checkers import build_wheel, python_without_project

from .stage import SUBSCRIPTION, publish, subscribed

pytestmark = [pytest.mark.slow, pytest.mark.spark]

COPY = "projects/p/topics/copy"
MASTER = "local-cluster[1,2,1024]"


def spark_home(folder: Path) -> Path:
    """Link the installed Spark under another name, because workers leave files in its home."""
    folder.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (folder / entry.name).symlink_to(entry)
    return folder


def test_a_spark_job_submitted_with_the_wheel_runs_without_pullstream_installed(
    tmp_path: Path, broker: Emulator
) -> None:
    """Source and sink work where Python has PySpark, pyarrow and gRPC, but no pullstream."""
    subscribed(broker)
    with TopicAdminClient(endpoint=broker.endpoint) as topics:
        topics.create_topic(name=COPY)
    publish(broker, 100, ordering_key="k")
    # Spark does not accept a file named .whl.
    package = shutil.copy(build_wheel(tmp_path), tmp_path / "pullstream.zip")
    python = python_without_project(tmp_path / "python")
    job = shutil.copy(Path(__file__).with_name("cluster_job.py"), tmp_path)
    home = spark_home(tmp_path / "spark")
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(home),
    }
    environment.pop("PYTHONPATH", None)
    ensure_java(environment)
    done = subprocess.run(
        [
            *(str(home / "bin" / "spark-submit"), "--master", MASTER, "--py-files", str(package)),
            *("--conf", "spark.executor.memory=1g", "--conf", "spark.ui.enabled=false"),
            *("--conf", f"spark.executor.extraJavaOptions={quick_java()}"),
            *(str(job), broker.endpoint, SUBSCRIPTION, COPY, str(tmp_path)),
        ],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"rows: 100 master: {MASTER}" in done.stdout, done.stdout + done.stderr[-5000:]
    assert broker.backlog(SUBSCRIPTION) == 0
    sent = {message.data for message in broker.messages(COPY)}
    assert sent == {b"%d" % number for number in range(100)}
