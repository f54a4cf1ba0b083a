"""`pullstream receive`: its output, its exit codes, its metrics, and its end."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from pullstream.cli.ingest_view import Rates
from pullstream.cli.receive_view import progress_text, summary
from pullstream.spark.receiver_processes.report import Activity, ReceiverReport
from tests.completed import run_command
from tests.subscriber.command_line import pullstream
from tests.subscriber.spark.receiver_processes.world import SUBSCRIPTION, World
from tests.subscriber.streaming.fakes import TIMEOUT, eventually


def arguments(world: World, *more: str) -> list[str]:
    return [
        *("receive", "--subscription", SUBSCRIPTION, "--endpoint", world.broker.endpoint),
        *("--spool", str(world.spool), "--option", "lingerMs=10", "--option", "drainWaitMs=200"),
        *more,
    ]


@contextmanager
def command(world: World, *more: str) -> Iterator[subprocess.Popen[str]]:
    """Provide the process of the command, which is killed at the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pullstream", *arguments(world, *more)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_the_receive_command_prints_progress_and_a_result_as_json(world: World) -> None:
    """With `stored`, no query is needed to end."""
    world.publish(b"1", b"2")
    result = pullstream(
        *arguments(world, "--available-now", "--acknowledge", "stored", "--streams", "2", "--json")
    )
    assert result.code == 0, result.stderr
    *progress, last = result.objects
    assert {one["type"] for one in progress} == {"progress"}
    assert (last["type"], last["messages"], last["acknowledged"]) == ("result", 2, 2)
    assert last["waitingSegments"] == last["segments"] > 0
    assert last["seconds"] > 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_the_receive_command_ends_after_a_signal_and_returns_messages(
    world: World, number: signal.Signals, code: int
) -> None:
    """So are those in segments that are not committed."""
    world.publish(b"1", b"2", b"3")
    more = ("--option", "maxMessagesPerTrigger=2", "--option", "lingerMs=100000")
    with command(world, *more, "--progress-every", "0.1") as process:
        eventually(lambda: len(world.broker.history.deliveries()) == 3 and world.manifests == 1)
        process.send_signal(number)
        output, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == code
    assert errors == "Returning messages; Ctrl-C again stops at once.\n"
    assert "2 messages in 1 segment" in output
    assert "3 returned" in output
    assert len(world.returned) == 3


def test_the_receive_command_has_an_exit_code_for_each_cause_of_a_failure(
    world: World, tmp_path: Path
) -> None:
    """The last object has the cause, too."""
    wrong = arguments(world, "--json", "--subscription", "projects/p/subscriptions/other")
    result = pullstream(*wrong)
    assert (result.code, result.objects[-1]["cause"]) == (3, "subscription")
    (tmp_path / "file").write_bytes(b"")
    result = pullstream(*arguments(world, "--json", "--spool", str(tmp_path / "file")))
    assert (result.code, result.objects[-1]["cause"]) == (5, "spool")
    assert "Not a directory" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("more", "error"),
    [
        (("--option", "lingerMs=soon"), "option 'lingerMs' is 'soon'; it must be"),
        (("--option", "wrong=1"), "option 'wrong' is unknown"),
        (("--option", "streams=2"), "--option streams is --streams; give it as that option only"),
        (
            ("--option", "partitionBy=orderingKey", "--receivers", "2"),
            "partitionBy is orderingKey and there are 2 receivers",
        ),
        (("--streams", "0"), "0 is not in the range"),
        (("--acknowledge", "never"), "'never' is not one of"),
    ],
)
def test_the_receive_command_refuses_wrong_arguments(
    world: World, more: tuple[str, ...], error: str
) -> None:
    """The exit code is 2, and no file is made."""
    result = pullstream(*arguments(world, *more))
    assert result.code == 2
    assert error in " ".join(result.stderr.split())
    assert not world.spool.exists()


WITHOUT_PYSPARK = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
from pullstream.cli.program import run
sys.exit(run(sys.argv[1:]))
"""


def test_the_receive_command_needs_no_pyspark(world: World) -> None:
    """A machine that only receives has pyarrow."""
    world.publish(b"1")
    more = arguments(world, "--available-now", "--acknowledge", "stored")
    result = run_command([sys.executable, "-c", WITHOUT_PYSPARK, *more])
    assert result.returncode == 0, result.stderr
    assert "1 message in 1 segment" in result.stdout


def test_the_receive_command_serves_metrics(world: World) -> None:
    """They have the name of the subscription."""
    world.publish(b"1", b"2")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with command(world, "--metrics-port", f"127.0.0.1:{port}") as process:

        def text() -> str:
            try:
                return str(urlopen(f"http://127.0.0.1:{port}/metrics").read(), "utf-8")
            except OSError:
                assert process.poll() is None
                return ""

        label = f'{{subscription="{SUBSCRIPTION}"}}'
        eventually(lambda: f"pullstream_receive_messages_total{label} 2.0" in text())
        found = text()
    assert f"pullstream_receive_waiting_segments{label}" in found
    activity = f'{{activity="receiving",subscription="{SUBSCRIPTION}"}}'
    assert f"pullstream_receive_activity{activity} 1.0" in found


def test_a_progress_line_says_why_a_receiver_waits() -> None:
    """Numbers that are 0 in normal operation are left out then."""
    report = ReceiverReport(activity=Activity.STORAGE, problem="disk away", rows=1, segments=1)
    assert progress_text(report, Rates(10.0, 2000.0)) == (
        "waiting for the storage (disk away), 1 message in 1 segment, 10 messages/s, "
        "2,000 bytes/s, 0 segments not committed (0 bytes), 0 leased"
    )
    report = ReceiverReport(redelivered=3, abandoned=1, expired=2, repeated=4)
    assert progress_text(report, Rates(0.0, 0.0)).endswith(
        "3 redelivered, 2 lost leases, 1 abandoned segment, 4 repeated calls of the storage"
    )
    report = ReceiverReport(rows=1234, segments=2, waiting_segments=1, acknowledged=1000)
    assert summary(report, as_json=False).splitlines() == [
        "1,234 messages in 2 segments, 0 bytes, in 0.0 s",
        "1,000 acknowledged, 0 returned",
        "1 segment not known to be committed",
    ]
