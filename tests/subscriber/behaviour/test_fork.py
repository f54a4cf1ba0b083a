"""A client in a forked child raises at once, and the parent continues."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.completed import run_command
from tests.subscriber.behaviour.stage import SUBSCRIPTION, TOPIC, Stage, stage
from tests.subscriber.streaming.fakes import TIMEOUT

ROOT = Path(__file__).resolve().parents[3]

# The child writes the result of each use as one line of JSON, and ends. The alarm would end a use
# that hangs, and nothing would be written.
PROGRAM = f"""
import json, os, signal, sys, threading
from pullstream import SubscriberClient, TopicAdminClient
from pullstream.runtime import fork_barrier

# A loaded machine may need longer than the default to wake a thread.
fork_barrier.FORK_WAIT = {TIMEOUT}
subscription, topic = {SUBSCRIPTION!r}, {TOPIC!r}
client = SubscriberClient(endpoint=sys.argv[1])
publisher = TopicAdminClient(endpoint=sys.argv[1])
kept, columns, came = [], [], threading.Semaphore(0)

def handle(message):
    kept.append(message)
    came.release()

def handle_columns(received):
    columns.append(received)
    came.release()

client.create_subscription(request={{"name": subscription + "-columns", "topic": topic}})
client.subscribe_batch(subscription + "-columns", handle_columns, columns=True)
future = client.subscribe(subscription, handle)
publisher.publish(topic, [{{"data": b"before"}}])
assert came.acquire(timeout=20) and came.acquire(timeout=20)

USES = {{
    "subscribe": lambda: client.subscribe(subscription, print),
    "subscribe_batch": lambda: client.subscribe_batch(subscription, print),
    "pull": lambda: client.pull(subscription=subscription, max_messages=1),
    "acknowledge": lambda: client.acknowledge(subscription=subscription, ack_ids=["a"]),
    "get_subscription": lambda: client.get_subscription(subscription=subscription),
    "publish": lambda: publisher.publish(topic, [{{"data": b"x"}}]),
    "result": lambda: future.result(),
    "exception": lambda: future.exception(),
    "cancel": lambda: future.cancel(),
    "close of the future": lambda: future.close(),
    "statistics": lambda: future.statistics(),
    "state": lambda: future.state,
    "ack": lambda: kept[0].ack(),
    "ack of columns": lambda: columns[0].ack(),
    "nack": lambda: kept[0].nack(),
    "modify_ack_deadline": lambda: kept[0].modify_ack_deadline(20),
    "ack_with_response": lambda: kept[0].ack_with_response(),
    "nack_with_response": lambda: kept[0].nack_with_response(),
    "close": lambda: client.close(),
    "close of the publisher": lambda: publisher.close(),
}}

def outcome(use):
    try:
        use()
    except Exception as error:
        return type(error).__name__
    return "nothing"

reader, writer = os.pipe()
child = os.fork()
if child == 0:
    signal.alarm(15)
    os.write(writer, json.dumps({{name: outcome(use) for name, use in USES.items()}}).encode())
    # As a program ends, with all that runs at exit.
    sys.exit(7)
os.close(writer)
print(os.read(reader, 65536).decode(), flush=True)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), flush=True)

kept[0].ack_with_response().result(20)
publisher.publish(topic, [{{"data": b"after"}}])
assert came.acquire(timeout=20) and came.acquire(timeout=20)
kept[1].ack()
client.close(timeout=20)
print([message.data.decode() for message in kept], future.result(), flush=True)
"""

# Children that run while their parent receives. Each ends by its own exit code, unless gRPC's
# inherited threads end it.
CHILDREN = 12
CROWD = f"""
import os, sys, threading
from pullstream import SubscriberClient, TopicAdminClient
from pullstream.runtime import fork_barrier

# A loaded machine may need longer than the default to wake a thread.
fork_barrier.FORK_WAIT = {TIMEOUT}
client = SubscriberClient(endpoint=sys.argv[1])
publisher = TopicAdminClient(endpoint=sys.argv[1])
came = threading.Semaphore(0)

def handle(message):
    message.ack()
    came.release()

future = client.subscribe({SUBSCRIPTION!r}, handle)

def receive():
    publisher.publish({TOPIC!r}, [{{"data": b"x"}}])
    assert came.acquire(timeout=20)

for _ in range({CHILDREN}):
    receive()
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(tell)
        os.read(told, 1)
        os._exit(7)
    receive()
    os.close(told)
    os.close(tell)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
client.close(timeout=20)
"""


# gRPC writes this line if a thread runs code of gRPC at the fork. The child may crash then.
UNSAFE = "skipping fork() handlers"


def run(program: str, here: Stage) -> list[str]:
    """Run a program whose forks are safe, and return the lines that it prints."""
    # Python 3.12 and gRPC warn of forks. This test is about a fork in spite of that.
    running = run_command([sys.executable, "-c", program, here.emulator.endpoint], cwd=ROOT)
    assert running.returncode == 0, running.stderr
    assert UNSAFE not in running.stderr
    return running.stdout.splitlines()


@pytest.fixture(scope="module")
def lines() -> Iterator[list[str]]:
    """Yield the lines that PROGRAM prints."""
    with stage() as here:
        lines = run(PROGRAM, here)
        assert_all_acknowledged(here)
        yield lines


def assert_all_acknowledged(here: Stage) -> None:
    assert here.backlog == 0


def test_using_the_client_of_the_parent_in_a_forked_child_raises_an_error_at_once(
    lines: list[str],
) -> None:
    """No use hangs on a thread or a lock that only the parent has."""
    assert lines[0], "a use hung"
    outcomes = json.loads(lines[0])
    closing = {"close", "close of the publisher"}
    assert {name: outcome for name, outcome in outcomes.items() if name not in closing} == (
        dict.fromkeys(outcomes.keys() - closing, "ForkedProcess")
    )


def test_closing_a_client_of_the_parent_in_a_forked_child_does_not_affect_the_parent(
    lines: list[str],
) -> None:
    """The child does not own the client, and it ends with its own exit code."""
    outcomes = json.loads(lines[0])
    assert (outcomes["close"], outcomes["close of the publisher"]) == ("nothing", "nothing")
    assert lines[1] == "7"


def test_a_subscription_continues_in_the_parent_after_a_fork(lines: list[str]) -> None:
    """The parent's subscription and its acknowledgements are not affected by the child."""
    assert lines[2] == "['before', 'after'] True"


def test_a_fork_while_the_parent_receives_messages_does_not_crash_the_child() -> None:
    """A thread of the parent inside gRPC at the fork makes the child's threads of gRPC crash."""
    with stage() as here:
        assert run(CROWD, here) == ["7"] * CHILDREN
