"""`pullstream worker`: real processes on a real broker, restarted, drained, reloaded."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pullstream import SubscriberClient
from pullstream_emulator import Emulator
from tests.subscriber.cli.billing import SUBSCRIPTION, publish
from tests.subscriber.command_line import pullstream, usage_error
from tests.subscriber.ended_subscribers import noticed_end
from tests.subscriber.streaming.fakes import eventually
from tests.subscriber.worker.program import Program, pids, python_path

Start = Callable[..., Program]


@pytest.fixture(autouse=True)
def folder(billing: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", python_path())


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Yield a function that starts a worker, which ends after the test."""
    running: list[Program] = []

    def start(
        *args: str, processes: int = 1, app: str = "", elsewhere: Path | None = None
    ) -> Program:
        options = (*args, "--processes", str(processes))
        running.append(Program(tmp_path, *options, app=app, elsewhere=elsewhere))
        return running[-1]

    yield start
    for program in running:
        program.close()


def free() -> list[str]:
    """Return the messages that another subscriber would get now."""
    with SubscriberClient() as client:
        response = client.pull(subscription=SUBSCRIPTION, max_messages=100, return_immediately=True)
    return sorted(one.message.data.decode() for one in response.received_messages)


# ---- handling ------------------------------------------------------------------------------------


def test_the_worker_command_handles_messages_in_all_its_processes_concurrently(
    start: Start, broker: Emulator
) -> None:
    """Each of the two processes has one message at the same time."""
    publish(b"a", b"b")
    program = start("--threads", "1", "--max-messages", "1", "--json", processes=2)
    begun = program.begun(2)
    assert sorted(data for data, _ in begun) == ["a", "b"]
    assert len(pids(begun)) == 2
    program.open_gate()
    eventually(lambda: broker.backlog(SUBSCRIPTION) == 0)
    program.stop()
    assert program.end() == 0
    (last,) = [json.loads(line) for line in program.stdout.splitlines()]
    assert [one["state"] for one in last["processes"]] == ["ended", "ended"]
    assert [one["acked"] for one in last["processes"]] == [1, 1]
    assert (last["total"]["acked"], last["total"]["restarts"]) == (2, 0)


def test_the_callback_of_the_worker_command_may_be_async(start: Start, broker: Emulator) -> None:
    """The coroutine is awaited."""
    publish(b"a")
    program = start(
        app="async def handle(message):\n    say('begun', 'a', 1)\n    message.ack()\n",
    )
    program.begun(1)
    eventually(lambda: broker.backlog(SUBSCRIPTION) == 0)


def test_the_callback_of_the_worker_command_may_take_batches_of_messages(
    start: Start, broker: Emulator
) -> None:
    """Batches have at most the requested size."""
    publish(b"a", b"b", b"c")
    program = start(
        *("--batch", "2", "--max-latency", "0.1"),
        app="def handle(messages):\n"
        "    say('begun', type(messages).__name__, len(messages))\n"
        "    for message in messages: message.ack()\n",
    )
    sizes: list[int] = []
    while sum(sizes) < 3:
        ((_, size),) = program.begun(1)
        sizes.append(size)
    assert max(sizes) <= 2
    eventually(lambda: broker.backlog(SUBSCRIPTION) == 0)


# ---- signals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_the_worker_command_after_the_messages_in_progress_are_acked(
    number: int, code: int, start: Start, broker: Emulator
) -> None:
    """Messages that have not begun are free, and running ones are finished and acknowledged."""
    publish(b"a", b"b", b"c")
    program = start("--threads", "1")
    ((handled, _),) = program.begun(1)
    program.stop(number)
    left: list[str] = []

    def the_others_are_free() -> bool:
        left.extend(free())
        return len(left) == 2

    eventually(the_others_are_free)
    assert sorted([handled, *left]) == ["a", "b", "c"]
    program.open_gate()
    assert program.end() == code
    assert broker.backlog(SUBSCRIPTION) == 2


def test_ctrl_c_in_the_worker_command_does_not_end_programs_started_by_its_callbacks(
    start: Start, broker: Emulator
) -> None:
    """A command that a callback has started is finished as well."""
    publish(b"a")
    program = start(
        app="""
import subprocess

def handle(message):
    with subprocess.Popen(["sh", "-c", "echo begun a $$ >&2; : < gate"]) as command:
        pass
    if command.returncode == 0:
        message.ack()
""",
    )
    program.begun(1)
    program.ctrl_c()
    program.open_gate()
    assert program.end() == 130
    assert broker.backlog(SUBSCRIPTION) == 0


def test_a_worker_callback_that_exceeds_the_drain_timeout_is_killed(start: Start) -> None:
    """The message is free at once, and the exit code is 1."""
    publish(b"a")
    program = start("--shutdown-timeout", "0.5")
    program.begun(1)
    program.stop()
    assert program.end() == 1
    assert "1 of the processes ended before their callbacks did" in program.said[-1]
    eventually(lambda: free() == ["a"])


def test_a_second_signal_ends_the_worker_command_without_waiting_for_running_callbacks(
    start: Start, broker: Emulator
) -> None:
    """The exit code is that of a killed program. Its message waits for the end of its lease."""
    publish(b"a")
    program = start()
    program.begun(1)
    program.stop()
    program.process.send_signal(signal.SIGTERM)
    assert program.end() == 143
    broker.inspect(lambda engine: engine.expire(SUBSCRIPTION))
    assert free() == ["a"]


def test_worker_processes_whose_parent_was_killed_finish_their_messages_and_end(
    start: Start, broker: Emulator
) -> None:
    """A killed parent sends no command, but the end of its control pipe is enough."""
    publish(b"a")
    program = start()
    program.begun(1)
    program.process.kill()
    program.process.wait()
    program.open_gate()
    # When the last process that can write to stderr has ended.
    assert program.end() == -signal.SIGKILL
    assert broker.backlog(SUBSCRIPTION) == 0


# ---- restarts ------------------------------------------------------------------------------------


def test_the_worker_command_restarts_a_crashed_process(start: Start, broker: Emulator) -> None:
    """The message of the crashed process is redelivered."""
    publish(b"a")
    program = start(
        app="""
def handle(message):
    say("begun", message.data.decode(), os.getpid())
    if not os.path.exists("crashed"):
        open("crashed", "w").close()
        pass_gate()
        os._exit(3)
    message.ack()
""",
    )
    ((_, first),) = program.begun(1)
    with noticed_end(broker, SUBSCRIPTION):
        program.open_gate()
        crash = program.wait_for("it restarts in")
    assert f"process 1 (pid {first}) ended with exit code 3" in crash
    # The broker cannot know that nobody will acknowledge the message: its lease has to end.
    broker.clock.advance(60)
    ((data, second),) = program.begun(1)
    assert (data, second != first) == ("a", True)
    eventually(lambda: broker.backlog(SUBSCRIPTION) == 0)
    program.stop()
    assert program.end() == 0
    assert " acked=1 " in program.stdout
    assert " restarts=1 " in program.stdout


def test_a_worker_process_that_gets_sigterm_finishes_its_messages_and_is_replaced(
    start: Start,
) -> None:
    """A user may thus get a new process."""
    publish(b"a")
    program = start()
    ((_, pid),) = program.begun(1)
    os.kill(pid, signal.SIGTERM)
    program.open_gate()
    assert "ended with exit code 0" in program.wait_for("it restarts in")
    publish(b"b")
    ((data, other),) = program.begun(1)
    assert (data, other != pid) == ("b", True)


@pytest.mark.parametrize("is_here", [True, False])
def test_the_worker_command_with_reload_runs_the_new_code_of_a_changed_callback(
    is_here: bool,
    start: Start,
    broker: Emulator,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The module is in the current folder or elsewhere, and an edit in between was broken.

    Running callbacks are finished by the old code.
    """
    publish(b"a")
    elsewhere = None if is_here else tmp_path_factory.mktemp("elsewhere")
    program = start("--reload", elsewhere=elsewhere)
    ((_, pid),) = program.begun(1)
    program.write("def handle(:\n")
    program.wait_for("app.py has changed, reloading")
    program.open_gate()
    assert "SyntaxError" in program.wait_for("cannot load the callback")
    program.write("def handle(message):\n    say('new', os.getpid())\n    message.ack()\n")
    program.wait_for("reloading")
    publish(b"b")
    assert program.wait_for("new").split()[1] != str(pid)
    eventually(lambda: broker.backlog(SUBSCRIPTION) == 0)


# ---- early errors --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("callback", "says"),
    [
        ("no_such_module:handle", "No module named 'no_such_module'. Start the worker in"),
        ("json:handle", "module 'json' has no attribute 'handle'. Check the name"),
        ("json:__name__", "json:__name__ is 'json', which cannot be called"),
    ],
)
def test_a_callback_that_the_worker_command_cannot_find_is_a_usage_error(
    callback: str, says: str
) -> None:
    """The error is one line, and nothing is retried."""
    error = usage_error("worker", callback, "--subscription", "billing", "--processes", "2")
    assert says in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["handle"], "it must be of the form module:function"),
        (["app:handle", "--max-latency", "1"], "--max-latency needs --batch"),
        (["app:handle", "--batch", "1001"], "--batch must be no more than --max-messages"),
        (["app:handle", "--endpoint", "here there"], "endpoint must have the form host:port"),
        (["app:handle", "--shutdown-timeout", "0"], "--shutdown-timeout"),
    ],
)
def test_the_worker_command_exits_on_a_usage_error_before_it_starts_a_process(
    args: list[str], says: str
) -> None:
    """The exit code is 2."""
    result = pullstream("worker", "--subscription", "billing", *args)
    assert (result.code, result.stdout) == (2, b"")
    assert says in result.stderr


def test_all_processes_of_a_worker_command_report_a_missing_subscription_as_one_error() -> None:
    """One error is reported for all processes, of which there is one for each core."""
    result = pullstream("worker", "json:loads", "--subscription", "nothing", "--json")
    assert result.code == 1
    assert result.stderr.startswith("Error: NOT_FOUND: ")
    assert result.stderr.count("\n") == 1
    last, failed = result.objects
    assert (failed["type"], failed["exitCode"]) == ("error", 1)
    assert failed["error"] in result.stderr
    if sys.platform == "linux":
        assert len(last["processes"]) == len(os.sched_getaffinity(0))


def test_each_output_line_of_the_worker_command_names_the_process_that_printed_the_line(
    start: Start,
) -> None:
    """Each line of a traceback names its process, too."""
    publish(b"a", b"b")
    program = start(
        processes=2,
        app="""
def handle(message):
    message.ack()
    print("handled", message.data.decode())
    raise ValueError("no luck with " + message.data.decode())
""",
    )
    # Both may reach one process, which prints one traceback of the place.
    for _ in range(2):
        program.wait_for("handled ")
    program.stop()
    program.end()
    printed = [line for line in program.said if "luck" in line or line.startswith("[")]
    assert all(line.startswith(("[1] ", "[2] ")) for line in printed)
    assert sorted(line[4:] for line in printed if "handled" in line) == ["handled a", "handled b"]
    assert any(line[4:].startswith("Traceback") for line in printed)
    assert not any(line.startswith("Traceback") for line in program.said)


def test_the_worker_command_prints_output_of_its_processes_above_the_table_on_a_terminal(
    tmp_path: Path,
) -> None:
    """Output written directly to the terminal would damage the table."""
    (tmp_path / "app.py").write_text("print('hello')\nraise ValueError('no luck')\n")
    result = pullstream(
        *("worker", "app:handle", "--subscription", "billing", "--processes", "1"), terminal=True
    )
    assert result.code == 2
    assert "hello" in result.lines
    assert "ValueError: no luck" in result.stderr
