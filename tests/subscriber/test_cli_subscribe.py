"""`pullstream subscribe`: prints messages or runs a command for each, until it is told to stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator import Emulator
from protocol import names
from subscriber.cli.command_runner import command_environment
from subscriber.topics import TopicAdminClient
from tests.subscriber.command_line import pullstream

TOPIC = names.topic_path("test-project", "orders")
SUBSCRIPTION = names.subscription_path("test-project", "billing")


@pytest.fixture(autouse=True)
def billing(pubsub_emulator: Emulator) -> None:
    pullstream("topics", "create", "orders")
    pullstream("subscriptions", "create", "billing", "--topic", "orders")


def publish(*messages: bytes, **fields: object) -> list[str]:
    with TopicAdminClient() as client:
        return client.publish(TOPIC, [{"data": data, **fields} for data in messages])


# ---- printing ------------------------------------------------------------------------------------


def test_what_was_printed_is_acknowledged(pubsub_emulator: Emulator) -> None:
    """It stops at the number asked for, and the rest stays."""
    publish(b"one", b"two", b"three")
    result = pullstream("subscribe", "billing", "--max-messages", "2")
    assert (result.code, result.stdout, result.stderr) == (0, b"one\ntwo\n", "")
    assert pubsub_emulator.backlog(SUBSCRIPTION) == 1


def test_machines_get_an_object_for_each_message() -> None:
    """The same as from pull, without an ack id."""
    (message_id,) = publish(b"one", attributes={"a": "1"})
    (received,) = pullstream("subscribe", "billing", "--max-messages", "1", "--json").objects
    assert received.pop("publishTime").endswith("Z")
    assert received == {
        "messageId": message_id,
        "orderingKey": "",
        "attributes": {"a": "1"},
        "data": "one",
    }


def test_it_stops_when_nothing_comes_for_too_long() -> None:
    """That is no failure."""
    result = pullstream("subscribe", "billing", "--idle-exit", "0.05")
    assert (result.code, result.stdout, result.stderr) == (0, b"", "")


def test_a_stream_that_ends_with_an_error_is_a_failure() -> None:
    """One line tells."""
    result = pullstream("subscribe", "nothing")
    assert result.code == 1
    assert result.stderr.startswith("Error: NOT_FOUND: ")
    assert result.stderr.count("\n") == 1


# ---- running a command ---------------------------------------------------------------------------


def test_a_command_gets_the_message(tmp_path: Path, pubsub_emulator: Emulator) -> None:
    """Data on stdin, the rest in the environment; exit code 0 acknowledges."""
    (message_id,) = publish(b"one\x00two", attributes={"event-type": "paid"}, ordering_key="k")
    out = tmp_path / "out"
    command = (
        f"{{ cat; echo; echo $PUBSUB_MESSAGE_ID $PUBSUB_ORDERING_KEY $PUBSUB_ATTR_EVENT_TYPE "
        f"$PUBSUB_SUBSCRIPTION; }} > {out}"
    )
    result = pullstream("subscribe", "billing", "--max-messages", "1", "--exec", command)
    assert (result.code, result.stdout, result.stderr) == (0, b"", "")
    assert out.read_bytes() == f"one\0two\n{message_id} k paid {SUBSCRIPTION}\n".encode()
    assert pubsub_emulator.backlog(SUBSCRIPTION) == 0


def test_a_command_that_fails_gives_the_message_back(pubsub_emulator: Emulator) -> None:
    """A remark tells its exit code."""
    (message_id,) = publish(b"one")
    result = pullstream("subscribe", "billing", "--max-messages", "1", "--exec", "exit 3")
    assert result.code == 0
    assert result.stderr == f"message {message_id}: exit code 3, given back\n"
    assert pubsub_emulator.backlog(SUBSCRIPTION) == 1


def test_workers_run_commands_side_by_side(tmp_path: Path) -> None:
    """Each of the two waits for the other at a named pipe."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    publish(b"one", b"two")
    command = f'if [ "$(cat)" = one ]; then echo hello > {pipe}; else cat {pipe} > {pipe}.out; fi'
    result = pullstream(
        "subscribe", "billing", "--max-messages", "2", "--workers", "2", "--exec", command
    )
    assert result.code == 0
    assert Path(f"{pipe}.out").read_text() == "hello\n"


def test_attributes_become_variables() -> None:
    """Names are made such that a shell can read them, and values such that it can hold them."""
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


# ---- being stopped -------------------------------------------------------------------------------


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """The program as a process of its own."""
    command = [sys.executable, "-m", "subscriber.cli", "subscribe", "billing"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        yield running
        running.kill()


def next_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_in_good_order(
    number: int, code: int, process: subprocess.Popen[bytes], pubsub_emulator: Emulator
) -> None:
    """What was printed is acknowledged by then, and there is no traceback."""
    publish(b"one")
    assert next_line(process) == b"one\n"
    process.send_signal(number)
    _, stderr = process.communicate()
    assert process.returncode == code
    assert stderr.strip() == b""
    assert pubsub_emulator.backlog(SUBSCRIPTION) == 0


def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    """For the command that runs, say; its message is delivered again."""
    began = tmp_path / "began"
    command = [sys.executable, "-m", "subscriber.cli", "subscribe", "billing"]
    script = f"touch {began}; exec sleep 60"
    with subprocess.Popen([*command, "--exec", script], start_new_session=True) as running:
        publish(b"one")
        while not began.exists():
            assert running.poll() is None
        while running.poll() is None:
            running.send_signal(signal.SIGTERM)
        os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == -signal.SIGTERM


def test_a_reader_that_leaves_ends_it(
    process: subprocess.Popen[bytes], pubsub_emulator: Emulator
) -> None:
    """As in `pullstream subscribe | head -1`. What nobody read is not acknowledged."""
    publish(b"one")
    assert next_line(process) == b"one\n"
    assert process.stdout is not None
    process.stdout.close()
    publish(b"two")
    assert process.wait() == 1
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert pubsub_emulator.backlog(SUBSCRIPTION) == 1
