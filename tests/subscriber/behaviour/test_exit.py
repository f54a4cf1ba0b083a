"""Programs that end while they are subscribed."""

from __future__ import annotations

import platform
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.subscriber.behaviour.stage import SUBSCRIPTION, Stage, stage
from tests.subscriber.program import end_of, interrupted, start_program

PROLOGUE = f"""
import sys, threading
from pullstream import SubscriberClient

acked = threading.Semaphore(0)
kept = threading.Semaphore(0)

def handle(message):
    if message.data.startswith(b"ack"):
        message.ack()
        acked.release()
    else:
        kept.release()

def wait_for(count, semaphore):
    for _ in range(count):
        assert semaphore.acquire(timeout=20)

def receive_all():
    future = client.subscribe(subscription, handle)
    wait_for(20, acked)
    wait_for(5, kept)
    return future

client = SubscriberClient(endpoint=sys.argv[1])
subscription = {SUBSCRIPTION!r}
"""


@pytest.fixture(params=[False, True], ids=["at-least-once", "exactly-once"])
def here(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with stage(enable_exactly_once_delivery=request.param) as here:
        here.publish(*[b"ack"] * 20, *[b"keep"] * 5)
        yield here


def program(here: Stage, text: str) -> subprocess.Popen[str]:
    return start_program(PROLOGUE + text, here.emulator.endpoint)


@pytest.mark.parametrize(
    "ending", ["", "sys.exit(3)\n", "raise SystemExit(3)\n"], ids=["end", "exit", "raise"]
)
def test_at_exit_an_unclosed_client_sends_acks_and_returns_messages_to_the_server(
    here: Stage, ending: str
) -> None:
    """The program closes nothing. It has its own exit code and prints nothing."""
    running = program(here, "receive_all()\n" + ending)
    assert end_of(running) == ("", "", 3 if ending else 0)
    assert here.backlog == 5
    assert here.free() == [b"keep"] * 5


def test_a_message_callback_that_never_ends_does_not_block_the_program_exit(here: Stage) -> None:
    """The message of the callback is also returned."""
    running = program(
        here,
        "def stuck(message):\n"
        "    kept.release()\n"
        "    threading.Event().wait()\n"
        "client.subscribe(subscription, stuck)\n"
        "wait_for(10, kept)\n",
    )
    assert end_of(running) == ("", "", 0)
    assert len(here.free()) == 25


def test_ctrl_c_in_the_wait_for_a_subscription_future_ends_the_program(here: Stage) -> None:
    """The program gets the exception and closes, and nothing else is printed."""
    running = program(
        here,
        "future = receive_all()\n"
        "try:\n"
        "    print('ready', flush=True)\n"
        "    future.result()\n"
        "except KeyboardInterrupt:\n"
        "    print(future.close(timeout=20), future.result())\n"
        "    sys.exit(130)\n",
    )
    assert interrupted(running) == ("True True\n", "", 130)
    assert here.backlog == 5
    assert here.free() == [b"keep"] * 5


def test_ctrl_c_in_a_client_with_block_returns_messages_to_the_server(here: Stage) -> None:
    """The traceback is the program's own, and its unsettled messages are returned."""
    running = program(
        here,
        "with client:\n"
        "    future = receive_all()\n"
        "    print('ready', flush=True)\n"
        "    future.result()\n",
    )
    _, err, code = interrupted(running)
    assert err.count("Traceback") == 1
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert code == -signal.SIGINT
    assert here.backlog == 5
    assert here.free() == [b"keep"] * 5


MEASURE = """
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
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the heap is not glibc's here")
def test_a_subscriber_process_reuses_the_memory_of_large_responses() -> None:
    """The memory is not returned to the system and requested again page by page."""
    with stage() as here:
        here.publish(b"a")
        here.publish(b"x" * 100_000)
        running = program(here, MEASURE)
        assert end_of(running) == ("True\n", "", 0)
