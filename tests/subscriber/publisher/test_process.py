"""The publisher in a process that ends, forks, or gets no more threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pullstream import (
    BatchSettings,
    ForkedProcess,
)
from pullstream.rpc import rpcs
from pullstream_emulator import Emulator
from pullstream_protocol.due_thread import DueThread
from tests.threads import on_threads

from .conftest import TOPIC, Server, limited_client

ROOT = Path(__file__).parents[3]


def run_program(source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, which must come within 30 seconds."""
    return subprocess.run(
        [sys.executable, "-c", source, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "subscriber:protocol:emulator"},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )


FORGETS_TO_CLOSE = """
import sys
from pullstream import BatchSettings, PublisherClient
publisher = PublisherClient(BatchSettings(max_latency=60), endpoint=sys.argv[1])
for number in range(250):
    publisher.publish(sys.argv[2], b"%d" % number)
publisher.publish(sys.argv[2], b"last").add_done_callback(lambda one: print("ID", one.result()))
"""


def test_a_program_that_ends_without_closing_its_publisher_sends_all_messages(
    emulator: Emulator,
) -> None:
    """The program ends after the done callbacks."""
    ended = run_program(FORGETS_TO_CLOSE, emulator.endpoint, TOPIC)
    assert len(emulator.messages(TOPIC)) == 251
    assert ended.stdout.startswith("ID ")
    assert ended.stderr == ""


FORGETS_TO_CLOSE_WITH_LIMITS = """
import asyncio, sys
from pullstream import *
limits = PublishFlowControl(10, 1_000_000, LimitExceededBehavior.BLOCK)
async def main():
    options = PublisherOptions(flow_control=limits)
    publisher = AsyncPublisherClient((), options, endpoint=sys.argv[1])
    for number in range(250):
        publisher.publish(sys.argv[2], b"%d" % number)
asyncio.run(main())
"""


def test_program_exit_sends_messages_that_wait_for_flow_control_of_an_unclosed_publisher(
    emulator: Emulator,
) -> None:
    """Flow control has not let all of them into the queue when the program ends."""
    ended = run_program(FORGETS_TO_CLOSE_WITH_LIMITS, emulator.endpoint, TOPIC)
    assert len(emulator.messages(TOPIC)) == 250
    assert ended.stderr == ""


WITHOUT_A_SERVER = """
import logging
from pullstream import BatchSettings, PublisherClient
from pullstream.runtime import process
logging.basicConfig()
process.EXIT_TIMEOUT = 1.3
publisher = PublisherClient(BatchSettings(max_messages=2), endpoint="127.0.0.1:1")
futures = [publisher.publish("projects/p/topics/t", b"x") for _ in range(3)]
futures[0].add_done_callback(lambda future: print(type(future.exception()).__name__))
"""


def test_a_program_that_publishes_without_a_server_ends_and_logs_the_lost_messages() -> None:
    """The futures of the messages fail, and their number is logged."""
    ended = run_program(WITHOUT_A_SERVER)
    assert ended.stdout == "PublisherClosed\n"
    assert "0 messages were not sent, and 3 were sent but not confirmed" in ended.stderr


def holds_in_child(condition: Callable[[], bool]) -> bool:
    """Return the result of a function that runs in a fork of this process.

    No call may be starting in gRPC at this moment: gRPC could crash the child.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if condition() else 2
        finally:
            os._exit(status)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 2), f"the child ended with {code}"
    return code == 0


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
may_fork = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@forks
@may_fork
def test_publishes_that_wait_for_flow_control_fail_in_a_forked_child(server: Server) -> None:
    """The messages wait for room, and the child gets no answer that makes room."""
    publisher = limited_client(server, batches=BatchSettings(max_latency=60))
    first = publisher.publish(TOPIC, b"x")
    deferred = publisher.publish(TOPIC, b"y")
    assert holds_in_child(lambda: isinstance(deferred.exception(5), ForkedProcess))
    assert first.result(10)
    assert deferred.result(10)
    publisher.admin.close(10)


@forks
@may_fork
def test_publish_futures_fail_in_a_forked_child_and_succeed_in_the_parent(server: Server) -> None:
    """In the child no thread will resolve them; in the parent they are not affected."""
    server.gate.clear()
    publisher = server.connect(BatchSettings(max_latency=60))
    plain = publisher.publish(TOPIC, b"x")
    waiting = publisher.publish(TOPIC, b"y")
    with on_threads(lambda: waiting.exception(10)):
        server.wait_for_calls(1)

        def child() -> bool:
            errors = [type(future.exception(5)) for future in (plain, waiting)]
            with pytest.raises(ForkedProcess):
                publisher.publish(TOPIC, b"z")
            publisher.close(5)
            return errors == [ForkedProcess] * 2

        assert holds_in_child(child)
        server.gate.set()
        assert plain.result(10)
        assert waiting.result(10)


def refuse(self: DueThread) -> None:
    raise RuntimeError("can't start new thread")


def test_publish_raises_if_the_publisher_cannot_start_its_thread(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message could not be sent at its time; the next publish tries again."""
    publisher = server.connect()
    with monkeypatch.context() as refusing:
        refusing.setattr(DueThread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            publisher.publish(TOPIC, b"x")
    assert publisher.publish(TOPIC, b"x").result(10) == "1"


def test_publish_makes_a_blocking_call_if_grpc_cannot_start_a_thread(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python refuses threads to a program that ends; gRPC needs one for asynchronous answers."""
    monkeypatch.setattr(rpcs, "has_its_thread", lambda _: False)
    publisher = server.connect()
    assert publisher.publish(TOPIC, b"x").result(10) == "1"
    assert publisher.publish_many(TOPIC, [b"x", b"y"]).result(10) == ["2", "3"]


def test_publish_done_callbacks_run_on_the_receiving_thread_if_no_thread_can_start(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that received the answer runs them."""
    publisher = server.connect(BatchSettings(max_latency=60))
    done = threading.Event()
    future = publisher.publish(TOPIC, b"x")
    future.add_done_callback(lambda _: done.set())
    monkeypatch.setattr(DueThread, "start", refuse)
    assert future.result(10) == "1"
    assert done.wait(10)
