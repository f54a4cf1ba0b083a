"""`pullstream subscribe`: prints messages or runs a command for each, until it is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pullstream.cli.command_runner import command_environment
from pullstream_emulator import Emulator
from tests.subscriber.cli.billing import SUBSCRIPTION, Process, command, next_line, publish
from tests.subscriber.command_line import failure, pullstream
from tests.subscriber.streaming.fakes import eventually

pytestmark = pytest.mark.usefixtures("billing")


# ---- printing ------------------------------------------------------------------------------------


def test_the_subscribe_command_acknowledges_only_the_messages_that_it_has_printed(
    broker: Emulator,
) -> None:
    """The command stops at the requested number, and the rest stays in the backlog."""
    publish(b"one", b"two", b"three")
    result = pullstream("subscribe", "billing", "--max-messages", "2")
    assert (result.code, result.stdout, result.stderr) == (0, b"one\ntwo\n", "")
    assert broker.backlog(SUBSCRIPTION) == 1


def test_the_subscribe_command_with_json_prints_an_object_for_each_message() -> None:
    """The fields are those of `pull`, without an ack id."""
    (message_id,) = publish(b"one", attributes={"a": "1"})
    (received,) = pullstream("subscribe", "billing", "--max-messages", "1", "--json").objects
    assert received.pop("publishTime").endswith("Z")
    assert received == {
        "messageId": message_id,
        "orderingKey": "",
        "attributes": {"a": "1"},
        "data": "one",
    }


def test_the_subscribe_command_ends_after_the_idle_time_without_messages() -> None:
    """The exit code is 0."""
    result = pullstream("subscribe", "billing", "--idle-exit", "0.05")
    assert (result.code, result.stdout, result.stderr) == (0, b"", "")


def test_the_subscribe_command_fails_if_the_streaming_pull_ends_with_an_error() -> None:
    """The error is one line."""
    error = failure("subscribe", "nothing")
    assert error.startswith("Error: NOT_FOUND: ")
    assert error.count("\n") == 1


# ---- running a command ---------------------------------------------------------------------------


def test_the_subscribe_command_passes_each_message_to_the_command_of_its_exec_option(
    tmp_path: Path, broker: Emulator
) -> None:
    """The command gets data on stdin and the rest in its environment. Exit code 0 acknowledges."""
    (message_id,) = publish(b"one\x00two", attributes={"event-type": "paid"}, ordering_key="k")
    out = tmp_path / "out"
    command = (
        f"{{ cat; echo; echo $PUBSUB_MESSAGE_ID $PUBSUB_ORDERING_KEY $PUBSUB_ATTR_EVENT_TYPE "
        f"$PUBSUB_SUBSCRIPTION; }} > {out}"
    )
    result = pullstream("subscribe", "billing", "--max-messages", "1", "--exec", command)
    assert (result.code, result.stdout, result.stderr) == (0, b"", "")
    assert out.read_bytes() == f"one\0two\n{message_id} k paid {SUBSCRIPTION}\n".encode()
    assert broker.backlog(SUBSCRIPTION) == 0


def test_the_subscribe_command_nacks_a_message_whose_executed_command_fails(
    broker: Emulator,
) -> None:
    """A note on stderr has the exit code."""
    (message_id,) = publish(b"one")
    result = pullstream("subscribe", "billing", "--max-messages", "1", "--exec", "exit 3")
    assert result.code == 0
    assert result.stderr == f"message {message_id}: exit code 3, nacked\n"
    assert broker.backlog(SUBSCRIPTION) == 1


def test_the_subscribe_command_with_two_workers_runs_two_commands_at_a_time(tmp_path: Path) -> None:
    """Each of the two commands waits for the other at a named pipe."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    publish(b"one", b"two")
    command = f'if [ "$(cat)" = one ]; then echo hello > {pipe}; else cat {pipe} > {pipe}.out; fi'
    result = pullstream(
        "subscribe", "billing", "--max-messages", "2", "--workers", "2", "--exec", command
    )
    assert result.code == 0
    assert Path(f"{pipe}.out").read_text() == "hello\n"


def test_commands_executed_by_subscribe_get_message_attributes_as_environment_variables() -> None:
    """The names can be used in a shell, and values have only allowed characters."""
    record = {
        "messageId": "1",
        "publishTime": "2026-01-02T03:04:05Z",
        "orderingKey": "",
        "deliveryAttempt": 2,
        "attributes": {"ce-type.v1": "a\0b", "größe": "3"},
    }
    assert command_environment(record, "s") == {
        "PUBSUB_SUBSCRIPTION": "s",
        "PUBSUB_MESSAGE_ID": "1",
        "PUBSUB_PUBLISH_TIME": "2026-01-02T03:04:05Z",
        "PUBSUB_ORDERING_KEY": "",
        "PUBSUB_DELIVERY_ATTEMPT": "2",
        "PUBSUB_ATTR_CE_TYPE_V1": "ab",
        "PUBSUB_ATTR_GR__E": "3",
    }


# ---- signals -------------------------------------------------------------------------------------


@pytest.fixture
def process() -> Iterator[Process]:
    with command("subscribe", "billing") as running:
        yield running


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_subscribe_command_after_its_acks_were_sent(
    number: int, code: int, process: Process, broker: Emulator
) -> None:
    """Printed messages are acknowledged by then, and there is no traceback."""
    publish(b"one")
    assert next_line(process) == b"one\n"
    process.send_signal(number)
    _, stderr = process.communicate()
    assert process.returncode == code
    assert stderr.strip() == b""
    assert broker.backlog(SUBSCRIPTION) == 0


def test_a_second_signal_ends_the_subscribe_command_while_its_executed_command_runs(
    tmp_path: Path,
) -> None:
    """The program does not wait for a running command, whose message is redelivered."""
    began = tmp_path / "began"
    program = [sys.executable, "-m", "pullstream", "subscribe", "billing"]
    script = f"touch {began}; exec sleep 60"
    with subprocess.Popen([*program, "--exec", script], start_new_session=True) as running:
        publish(b"one")
        while not began.exists():
            assert running.poll() is None
        while running.poll() is None:
            running.send_signal(signal.SIGTERM)
    assert running.returncode == -signal.SIGTERM


# The program as the leader of a session whose terminal is its standard input.
ON_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "pullstream", *sys.argv[1:]])
"""


class Terminal:
    """The program on its own terminal."""

    def __init__(self, *args: str) -> None:
        self._keyboard, theirs = os.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", ON_TERMINAL, *args],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def ctrl_c(self) -> None:
        """Type Ctrl-C, so that the terminal sends SIGINT to its foreground process group."""
        os.write(self._keyboard, b"\x03")

    def until_shown(self, text: bytes) -> None:
        shown = b""
        while text not in shown:
            shown += os.read(self._keyboard, 1000)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._keyboard)


@pytest.fixture
def pipes(tmp_path: Path) -> tuple[Path, Path]:
    """Return two named pipes."""
    names = tmp_path / "one", tmp_path / "other"
    for name in names:
        os.mkfifo(name)
    return names


def test_ctrl_c_in_the_subscribe_command_lets_the_executed_command_finish(
    pipes: tuple[Path, Path], tmp_path: Path, broker: Emulator
) -> None:
    """The message of the command is acknowledged."""
    began, gate = pipes
    out = tmp_path / "out"
    publish(b"one")
    script = f"echo > {began}; cat {gate}; echo finished >> {out}"
    terminal = Terminal("subscribe", "billing", "--exec", script)
    with closing(terminal):
        began.read_bytes()
        terminal.ctrl_c()
        # The terminal shows it after it has sent the signal.
        terminal.until_shown(b"^C")
        gate.write_bytes(b"")
        assert terminal.process.wait() == 130
    assert out.read_text() == "finished\n"
    assert broker.backlog(SUBSCRIPTION) == 0


def test_a_second_ctrl_c_in_the_subscribe_command_terminates_the_executed_command(
    pipes: tuple[Path, Path], tmp_path: Path, broker: Emulator
) -> None:
    """The child processes of the command end as well, and the message is redelivered."""
    began, _ = pipes
    # A file, because a further signal would interrupt the shell while it opens a pipe.
    ended = tmp_path / "ended"
    publish(b"one")
    script = f"trap 'echo terminated > {ended}; exit 1' TERM; sleep 600 & echo > {began}; wait"
    terminal = Terminal("subscribe", "billing", "--exec", script)
    with closing(terminal):
        began.read_bytes()
        while terminal.process.poll() is None:
            terminal.ctrl_c()
        assert terminal.process.returncode == -signal.SIGINT
        eventually(lambda: ended.exists() and ended.read_text() == "terminated\n")
    assert broker.backlog(SUBSCRIPTION) == 1


def test_the_subscribe_command_ends_when_the_reader_closes_its_output_pipe(
    process: Process, broker: Emulator
) -> None:
    """As in `pullstream subscribe | head -1`, unread messages are not acknowledged."""
    publish(b"one")
    assert next_line(process) == b"one\n"
    assert process.stdout is not None
    process.stdout.close()
    publish(b"two")
    assert process.wait() == 1
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert broker.backlog(SUBSCRIPTION) == 1
