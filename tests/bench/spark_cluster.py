"""`pullstream ingest --master` on Spark's own cluster, with and without settings made by hand.

`cluster` is a mode of tests/bench/spark_client.py.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.subscriber.spark.standalone import standalone_cluster

from .client import SUBSCRIPTION, Figures

CORES = 2

# The settings of a person who knows both Spark and this cluster.
_JAVA = "-XX:CompileThresholdScaling=5 -XX:+UseParallelGC"
TUNED = {
    "spark.executor.cores": str(CORES),
    "spark.default.parallelism": str(CORES),
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.sql.adaptive.enabled": "false",
    "spark.locality.wait": "0s",
    "spark.ui.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.unix.domain.socket.dir": "/tmp",
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.executor.extraJavaOptions": _JAVA,
}


def cluster(arguments: argparse.Namespace) -> Figures:
    """Measure rows per second from the end of the first batch to the end of the last."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        with standalone_cluster(folder / "cluster", cores=CORES) as url:
            command = [
                *(sys.executable, "-m", "pullstream", "ingest", "--json", "--available-now"),
                *("--subscription", SUBSCRIPTION.format(0), "--endpoint", arguments.endpoint),
                *("--to", str(folder / "rows"), "--batch-rows", str(arguments.rows)),
                *("--master", url, "--progress-every", "0.1", "--option", "drainWaitMs=500"),
            ]
            if arguments.tuned:
                for setting, value in TUNED.items():
                    command += ["--conf", f"{setting}={value}"]
                command += ["--option", f"numPartitions={CORES}"]
            return {"rows": _rate(command, arguments.messages)}


def _rate(command: list[str], messages: int) -> float:
    """Run an ingestion job to its end, and return its rows per second after the first batch."""
    moments: list[tuple[float, int]] = []
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            rows = json.loads(line).get("messages", 0)
            if rows and (not moments or rows > moments[-1][1]):
                moments.append((time.monotonic(), rows))
    if process.returncode:
        sys.exit(f"the job has ended with the code {process.returncode}")
    (began, first), (ended, last) = moments[0], moments[-1]
    if last != messages or first == last:
        sys.exit(f"the job has written {last} of {messages} rows, {first} of them at first")
    return (last - first) / (ended - began)
