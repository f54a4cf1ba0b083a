"""`pullstream ingest` on real Spark: its output, its exit codes, its metrics, and its silence."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

from pullstream import SubscriberClient, TopicAdminClient
from pullstream_emulator import Emulator
from tests.completed import run_command
from tests.subscriber.command_line import pullstream
from tests.subscriber.spark.stage import SUBSCRIPTION, TOPIC

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[4]
SCHEMA = "id BIGINT NOT NULL, more STRUCT<a: INT>"

DATA = (b'{"id": 1, "more": {"x": 2}}', b"bad", b"worse", b"{}")


@pytest.fixture
def broker() -> Iterator[Emulator]:
    """Yield a broker with HTTP, a topic and its subscription."""
    with (
        Emulator(rest=True) as emulator,
        TopicAdminClient(endpoint=emulator.endpoint) as topics,
        SubscriberClient(endpoint=emulator.endpoint) as client,
    ):
        topics.create_topic(name=TOPIC)
        client.create_subscription(name=SUBSCRIPTION, topic=TOPIC)
        topics.publish(TOPIC, [{"data": one} for one in DATA])
        yield emulator


def arguments(broker: Emulator, to: Path, *more: str) -> list[str]:
    return [
        *("ingest", "--subscription", SUBSCRIPTION, "--endpoint", broker.endpoint),
        *("--to", str(to), "--decode", "json", "--schema", SCHEMA),
        *("--option", "drainWaitMs=300", "--option", "lingerMs=50", "--json", *more),
    ]


def test_the_ingest_command_prints_progress_and_a_result_as_json(
    spark: SparkSession, broker: Emulator, tmp_path: Path
) -> None:
    """The first line comes before Spark, and the last object is the result."""
    result = pullstream(*arguments(broker, tmp_path / "rows", "--available-now"))
    assert result.code == 0, result.stderr
    *progress, last = result.objects
    assert {one["type"] for one in progress} == {"progress"}
    assert progress[0]["phase"] == "checking the subscription"
    assert last.pop("seconds") > 0
    assert last.pop("time").endswith("Z")
    assert last.pop("badReasons") == {"not one JSON value": 2, "missing: id": 1}
    assert last == {
        "type": "result",
        "batches": 1,
        "messages": 4,
        "bytes": sum(map(len, DATA)),
        "bad": 3,
        "known": 0,
        "unknownFields": 1,
        "unknownFieldNames": {"more.x": 1},
        "cutTimes": 0,
        "duplicates": 0,
        "to": str(tmp_path / "rows"),
        "badTo": str(tmp_path / "rows-deadletter"),
        "stopped": False,
    }
    status = pullstream("ingest", "status", str(tmp_path / "rows"), "--json").objects[0]
    assert (status["planned"], status["committed"], status["messages"]) == (1, 1, 0)
    assert (status["sparkPlanned"], status["sparkCommitted"]) == (0, 0)


def test_the_ingest_command_has_an_exit_code_for_each_cause_of_a_failure(
    spark: SparkSession, broker: Emulator, tmp_path: Path
) -> None:
    """The last object names cause and error, also after progress lines."""
    (tmp_path / "file").write_text("")
    state = ("--state", str(tmp_path / "state"))
    missing = arguments(broker, tmp_path / "rows", *state)
    missing[2] = "projects/p/subscriptions/nowhere"
    assert failed(missing) == (3, "subscription", "the job cannot start: NotFound:")
    assert pullstream(*arguments(broker, tmp_path / "rows", *state, "--available-now")).code == 0
    other = arguments(broker, tmp_path / "other", *state)
    assert failed(other) == (5, "state", "the state in")
    unwritable = arguments(broker, tmp_path / "file" / "rows", "--state", str(tmp_path / "more"))
    assert failed(unwritable)[:2] == (4, "table")
    assert failed(arguments(broker, tmp_path / "rows", "--option", "lingerMs=long"))[0] == 2


def failed(words: list[str]) -> tuple[int, str | None, str]:
    """Run a command that fails, and return code, cause and the error's beginning."""
    result = pullstream(*words)
    last = result.objects[-1]
    assert last["type"] == "error"
    assert last["exitCode"] == result.code
    error = " ".join(last["error"].split()[:5])
    return result.code, last.get("cause"), error if "job" in error else " ".join(error.split()[:3])


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


class Job:
    """The command in a separate process, with the lines of its output as they come."""

    def __init__(self, words: list[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pullstream", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )
        self.errors: list[str] = []
        assert self.process.stderr is not None
        self._reader = threading.Thread(target=self.errors.extend, args=(self.process.stderr,))
        self._reader.start()

    def objects(self) -> Iterator[dict[str, Any]]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield json.loads(line)

    def end(self) -> int:
        code = self.process.wait(60)
        self._reader.join()
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.process.stdout.close()
        self.process.stderr.close()
        return code


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)], ids=["Ctrl-C", "SIGTERM"]
)
def test_a_signal_to_its_process_group_ends_the_ingest_command_without_foreign_lines_on_stderr(
    broker: Emulator, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """A terminal and `timeout` send signals to the group, and the job needs its Java to end.

    Spark, Java and pyspark write nothing in a good run. The metrics have the written rows.
    """
    port = free_port()
    more = ("--metrics-port", f"127.0.0.1:{port}", "--progress-every", "0.2")
    job = Job(arguments(broker, tmp_path / "rows", *more))
    seen: list[dict[str, Any]] = []
    for one in job.objects():
        seen.append(one)
        if one["type"] == "progress" and one["messages"] == 4 and not one["unacknowledged"]:
            with urlopen(f"http://127.0.0.1:{port}/metrics") as response:
                page = response.read().decode()
            os.killpg(job.process.pid, number)
            break
    rest = list(job.objects())
    assert job.end() == code
    assert rest[-1]["type"] == "result"
    assert rest[-1]["stopped"]
    assert f'pullstream_ingest_rows_total{{subscription="{SUBSCRIPTION}"}} 4.0' in page
    stop = "Stopping after the current batch; Ctrl-C again stops at once."
    assert [line.strip() for line in job.errors] == [stop]
    phases = [one["phase"] for one in seen]
    assert phases[0] == "checking the subscription"
    assert {"starting Spark", "waiting for messages"} <= set(phases)
    assert any(one["unacknowledged"] == 4 for one in seen)


def test_the_source_process_of_spark_ends_without_a_trace_of_a_closed_connection() -> None:
    """Spark closes the connection when it stops a query. Another error has its trace."""
    for error, is_shown in (("BrokenPipeError()", False), ("KeyError()", True)):
        script = (
            "from pullstream.spark.datasource.source_reader import _end_without_trace\n"
            f"_end_without_trace()\nraise {error}"
        )
        result = run_command([sys.executable, "-c", script])
        assert ("Traceback" in result.stderr) is is_shown
