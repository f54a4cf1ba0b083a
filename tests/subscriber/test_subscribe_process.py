"""A subscribing program ends normally and prints nothing."""

from __future__ import annotations

import platform
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.subscriber.program import start_program
from tests.subscriber.streaming.fakes import PATIENCE
from tests.subscriber.world import SUBSCRIPTION, World, world

PROLOGUE = f"""
import sys, threading
from pullstream import Message, SubscriberClient

begun = threading.Event()

def handle(message):
    print("got", message.data.decode(), flush=True)
    message.ack()
    begun.set()

client = SubscriberClient(endpoint=sys.argv[1])
subscription = {SUBSCRIPTION!r}
"""


@pytest.fixture
def here() -> Iterator[World]:
    with world() as here:
        here.publish(b"a")
        yield here


def program(here: World, text: str) -> subprocess.Popen[str]:
    return start_program(PROLOGUE + text, here.emulator.endpoint)


def test_a_program_may_end_while_it_is_subscribed(here: World) -> None:
    """It may end without closing anything, and there is no error, warning or delay."""
    running = program(here, "client.subscribe(subscription, handle)\nbegun.wait()")
    out, err = running.communicate(timeout=PATIENCE)
    assert (out, err, running.returncode) == ("got a\n", "", 0)


def test_a_program_may_end_while_a_callback_runs(here: World) -> None:
    """A callback that never returns does not prevent the end."""
    running = program(
        here,
        "def stuck(message):\n"
        "    begun.set()\n"
        "    threading.Event().wait()\n"
        "client.subscribe(subscription, stuck)\n"
        "begun.wait()",
    )
    out, err = running.communicate(timeout=PATIENCE)
    assert (out, err, running.returncode) == ("", "", 0)


def test_ctrl_c_in_result_reaches_the_program_which_can_end_well(here: World) -> None:
    """Like the samples, the program cancels, waits and leaves."""
    running = program(
        here,
        "with client:\n"
        "    future = client.subscribe(subscription, handle)\n"
        "    try:\n"
        "        future.result()\n"
        "    except KeyboardInterrupt:\n"
        "        future.cancel()\n"
        "        print('ended', future.result(), flush=True)\n",
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "got a\n"
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=PATIENCE)
    assert (out, err, running.returncode) == ("ended True\n", "", 0)
    assert here.backlog == 0


def test_ctrl_c_ends_a_program_that_does_not_expect_it(here: World) -> None:
    """Only Python's own traceback is printed."""
    running = program(here, "with client:\n    client.subscribe(subscription, handle).result()\n")
    assert running.stdout is not None
    assert running.stdout.readline() == "got a\n"
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=PATIENCE)
    assert err.count("Traceback") == 1
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert running.returncode == -signal.SIGINT


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the heap is not glibc's here")
def test_memory_of_large_responses_is_kept_for_the_next_ones(here: World) -> None:
    """The memory is not returned to the system and requested again page by page."""
    here.publish(b"x" * 100_000)
    running = program(
        here,
        """
import resource

def faults_of(rounds):
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(rounds):
        [bytearray(b"x" * 10_000) for _ in range(300)]
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before

def measure():
    faults_of(50)
    print(faults_of(100) < 100 * 100)

both = threading.Barrier(3)

def take(message):
    message.ack()
    both.wait()

client.subscribe(subscription, take)
both.wait()
# A heap that is not the main thread's, as the reader's.
thread = threading.Thread(target=measure)
thread.start()
thread.join()
""",
    )
    out, err = running.communicate(timeout=PATIENCE)
    assert (out, err, running.returncode) == ("True\n", "", 0)
