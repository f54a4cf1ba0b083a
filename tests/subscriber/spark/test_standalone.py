"""`pullstream ingest --master` on Spark's own cluster, without any setting of Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from pullstream import SubscriberClient, TopicAdminClient
from pullstream_emulator import Emulator
from tests.subscriber.spark.stage import SUBSCRIPTION, TOPIC, publish, subscribed
from tests.subscriber.spark.standalone import can_hide, standalone_cluster

pytestmark = [pytest.mark.slow, pytest.mark.spark]

# The Python of the workers, which a setting of the executors can break.
PYTHON = """\
#!/bin/sh
case "$EXECUTORS" in
    without_python) exec /nowhere/python "$@";;
    without_packages) exec {bare} "$@";;
esac
exec {python} "$@"
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the URL of a master with one worker."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


def ingest(
    cluster: str,
    broker: Emulator,
    folder: Path,
    *more: str,
    variables: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "pullstream", "ingest", "--master", cluster),
            *("--subscription", SUBSCRIPTION, "--endpoint", broker.endpoint, "--available-now"),
            *("--to", str(folder / "rows"), "--option", "drainWaitMs=300", *more),
        ],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **(variables or {})},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_ingest_command_needs_no_settings_for_a_cluster(
    cluster: str, broker: Emulator, tmp_path: Path
) -> None:
    """It prints nothing of Spark's, such as a bar of progress."""
    subscribed(broker)
    publish(broker, 100)
    done = ingest(cluster, broker, tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert ds.dataset(tmp_path / "rows", exclude_invalid_files=True).count_rows() == 100
    assert broker.backlog(SUBSCRIPTION) == 0


@pytest.mark.parametrize(
    ("executors", "sentence"),
    [
        ("without_python", "Error: the executors cannot start Python; set PYSPARK_PYTHON to a "),
        ("without_packages", "Error: the executors lack the Python packages pyarrow; install "),
    ],
)
def test_the_ingest_command_says_in_one_line_what_the_executors_lack(
    cluster: str, broker: Emulator, tmp_path: Path, executors: str, sentence: str
) -> None:
    subscribed(broker)
    publish(broker, 100)
    python = tmp_path / "python"
    bare = f"{sys.base_prefix}/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
    python.write_text(PYTHON.format(bare=bare, python=sys.executable), encoding="utf-8")
    python.chmod(0o755)
    setting = f"spark.executorEnv.EXECUTORS={executors}"
    done = ingest(
        *(cluster, broker, tmp_path, "--conf", setting),
        variables={"PYSPARK_PYTHON": str(python)},
    )
    assert done.returncode == 6
    # On a busy machine, an executor may take long to start. pyspark's daemon, which runs the user's
    # program here, prints a trace when Spark closes a connection before the daemon has answered.
    *others, line = done.stderr.splitlines()
    assert not any(other.startswith("Error: ") for other in others), done.stderr
    assert line.startswith(sentence)
    assert str(python) in line
    assert broker.backlog(SUBSCRIPTION) == 100


def test_executors_that_do_not_see_the_drivers_disk_work_by_a_bucket(
    s3: dict[str, str], broker: Emulator, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Two workers see the driver's folder empty, as if they were other machines."""
    if not can_hide():
        pytest.skip("this user may make no mount namespace")
    names = [f"projects/p/subscriptions/apart{number}" for number in range(3)]
    with (
        TopicAdminClient(endpoint=broker.endpoint) as topics,
        SubscriberClient(endpoint=broker.endpoint) as client,
    ):
        topics.create_topic(name=TOPIC)
        for name in names:
            client.create_subscription(name=name, topic=TOPIC, ack_deadline_seconds=10)
    ids = sorted(publish(broker, 100))
    home = tmp_path_factory.mktemp("cluster")
    with standalone_cluster(home, workers=2, cores=2, hidden=tmp_path) as master:
        script = Path(__file__).with_name("apart_job.py")
        arguments = [master, broker.endpoint, str(tmp_path), json.dumps(s3), *names]
        done = subprocess.run(
            [sys.executable, str(script), *arguments],
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            timeout=150,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    is_seen, piped, received, rows = map(json.loads, done.stdout.splitlines())
    assert not is_seen
    assert sorted(piped) == sorted(received) == ids
    assert rows == 100
