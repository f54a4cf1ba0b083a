"""Watches at the end of a program, and after a fork."""

from __future__ import annotations

import signal

import pytest

from pullstream_emulator import Emulator
from tests.subscriber.program import end_of, interrupted, start_program

NEWS = "projects/p/topics/news"

PROLOGUE = f"""
import os, sys, threading
from pullstream import SubscriberClient
from pullstream.feeds import Records

came = threading.Semaphore(0)

def handle(frame):
    if isinstance(frame, Records):
        for _ in frame.messages:
            came.release()

def wait_for(count):
    for _ in range(count):
        assert came.acquire(timeout=20)

topic = {NEWS!r}
client = SubscriberClient(endpoint=sys.argv[1])
client.feeds.append(topic, ["a", "b"])
future = client.watch({{topic: 0}}, handle)
wait_for(2)
"""

# Python 3.12 and gRPC warn of forks. This test is about a fork in spite of that.
QUIET = "import warnings\nwarnings.simplefilter('ignore')\n"

# A child that runs while its parent's watch receives, and ends afterwards.
CROWD = """
for _ in range(6):
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write_end)
        os.read(read_end, 1)
        os._exit(7)
    client.feeds.append(topic, ["x"])
    wait_for(1)
    os.close(read_end)
    os.close(write_end)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""

CHILD = """
uses = {
    "watch": lambda: client.watch({topic: 0}, handle),
    "read": lambda: client.feeds.read(topic),
    "result": lambda: future.result(),
    "close of the future": lambda: future.close(),
}

def outcome(use):
    try:
        use()
    except Exception as error:
        return type(error).__name__
    return "nothing"

child = os.fork()
if child == 0:
    print(*(outcome(use) for use in uses.values()), flush=True)
    client.close()
    os._exit(7)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), flush=True)
client.feeds.append(topic, ["c"])
wait_for(1)
client.close()
print(future.result(), flush=True)
"""


@pytest.fixture
def endpoint(emulator: Emulator) -> str:
    return emulator.endpoint


@pytest.mark.parametrize("ending", ["", "sys.exit(3)\n"], ids=["end", "exit"])
def test_a_program_that_does_not_close_its_watch_exits_normally(endpoint: str, ending: str) -> None:
    """The program has its own exit code and prints nothing."""
    assert end_of(start_program(PROLOGUE + ending, endpoint)) == ("", "", 3 if ending else 0)


def test_ctrl_c_ends_a_program_that_waits_for_the_result_of_a_watch(endpoint: str) -> None:
    """Leaving the client's block ends the watch."""
    text = "with client:\n    print('ready', flush=True)\n    future.result()\n"
    program = start_program(PROLOGUE + text, endpoint)
    _, err, code = interrupted(program)
    assert err.count("Traceback") == 1
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert code == -signal.SIGINT


def test_every_use_of_the_parents_watch_in_a_forked_child_raises_an_error_at_once(
    endpoint: str,
) -> None:
    """Closing the client does nothing in the child, and the parent's watch continues."""
    out, _, code = end_of(start_program(QUIET + PROLOGUE + CHILD, endpoint))
    forked = " ".join(["ForkedProcess"] * 4)
    assert (out, code) == (f"{forked}\n7\nTrue\n", 0)


def test_a_child_forked_while_its_parent_watches_a_feed_does_not_crash(endpoint: str) -> None:
    """The threads of gRPC must not continue in the child."""
    out, _, code = end_of(start_program(QUIET + PROLOGUE + CROWD, endpoint))
    assert (out, code) == ("7\n" * 6, 0)
