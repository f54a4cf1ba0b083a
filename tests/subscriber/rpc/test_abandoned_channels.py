"""Threads that cannot be started: at the exit of the interpreter, or at the process limit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from pullstream import (
    Hooks,
    Message,
    StateChange,
    Statistics,
    StreamingPullFuture,
    SubscriberClient,
    SubscriptionState,
)
from pullstream.rpc import (
    abandoned_channels,
)
from tests.subscriber.behaviour.stage import SUBSCRIPTION, TOPIC, stage
from tests.subscriber.program import start_program
from tests.subscriber.streaming.fakes import TIMEOUT, eventually
from tests.threads import started_since


def test_a_subscription_sends_its_acknowledgements_even_if_grpc_can_start_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The shutdown sends it without a call that needs a new gRPC thread."""
    with stage() as here:
        here.publish(b"a")
        handled = threading.Event()

        def handle(message: Message) -> None:
            monkeypatch.setattr(abandoned_channels, "threads_are_refused", lambda: True)
            message.ack()
            handled.set()

        future = here.client.subscribe(SUBSCRIPTION, handle)
        assert handled.wait(TIMEOUT)
        future.cancel()
        future.result(TIMEOUT)
        assert here.backlog == 0
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("refusal", "warning"),
    [
        ("can't create new thread at interpreter shutdown", ""),
        ("can't start new thread", "can't start new thread; requests are sent one at a"),
    ],
)
def test_a_program_sends_its_acknowledgements_and_exits_even_if_grpc_can_start_no_thread(
    refusal: str, warning: str
) -> None:
    """A program still sends its acknowledgements and ends if gRPC gets no thread.

    Sequence on Python 3.12: the interpreter begins to exit and allows no more threads. While the
    program's executors end, an acknowledgement goes out, for which gRPC needs a thread. It gets
    none, and would wait for that call's answer when its channel ends. The other text is the error
    of a process with the maximum of threads, which does not exit.
    """
    with stage() as here:
        here.publish(*[b"x"] * 5)
        running = start_program(
            f"""
import sys, threading
from pullstream import SubscriberClient

start = threading.Thread.start

def start_unless_of_grpc(thread):
    if "_run_with_context" in repr(getattr(thread, "_target", None)):
        refused.set()
        raise RuntimeError({refusal!r})
    start(thread)

refused = threading.Event()
handled = threading.Semaphore(0)

def handle(message):
    message.ack()
    handled.release()

threading.Thread.start = start_unless_of_grpc
client = SubscriberClient(endpoint=sys.argv[1])
client.subscribe({SUBSCRIPTION!r}, handle)
for _ in range(5):
    assert handled.acquire(timeout=20)
assert refused.wait(20)
""",
            here.emulator.endpoint,
        )
        out, err = running.communicate(timeout=TIMEOUT)
        assert (out, running.returncode) == ("", 0)
        assert err.startswith(warning)
        assert err.count("\n") == (1 if warning else 0)
        assert here.backlog == 0


class Told(Hooks):
    """Records the states of a subscription from its beginning."""

    def __init__(self) -> None:
        self.states: list[SubscriptionState | None] = []

    def subscribed(self, subscription: str, statistics: Callable[[], Statistics]) -> None:
        self.states.append(None)

    def state_changed(self, subscription: str, change: StateChange) -> None:
        self.states.append(change.state)


@contextmanager
def refusing(name: str) -> Iterator[None]:
    """Refuse to start a thread with this name, as at the process limit."""
    start = threading.Thread.start
    refused = False

    def start_unless_refused(thread: threading.Thread) -> None:
        nonlocal refused
        if thread.name == name:
            refused = True
            raise RuntimeError("can't start new thread")
        start(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", start_unless_refused)
        yield
    assert refused


READER = "Thread-ConsumeBidirectionalStream"


@pytest.mark.parametrize(
    "refused",
    [
        "pullstream-dispatcher",
        "pullstream-leaser",
        "pullstream-heartbeat",
        "pullstream-batcher",
        READER,
    ],
)
def test_a_subscription_that_can_start_no_thread_fails_and_leaves_no_threads_behind(
    refused: str,
) -> None:
    """Hooks that got the begin also get the end. A later subscription works."""
    with stage() as here:
        before, told, seen = set(threading.enumerate()), Told(), threading.Event()

        def subscribe() -> StreamingPullFuture:
            return here.client.subscribe_batch(SUBSCRIPTION, lambda _: seen.set(), hooks=told)

        with refusing(refused), pytest.raises(RuntimeError, match="can't start new thread"):
            subscribe()
        eventually(lambda: not started_since(before, named="pullstream"))
        eventually(lambda: not started_since(before, named=READER))
        over = [None, SubscriptionState.CLOSING, SubscriptionState.CLOSED]
        assert told.states == (over if refused == READER else [])
        subscribe()
        here.publish(b"x")
        assert seen.wait(TIMEOUT)


def fetch(client: SubscriberClient) -> None:
    with client.fetch(SUBSCRIPTION):
        """Keeps the leases."""


@pytest.mark.parametrize(
    ("refused", "begin"),
    [
        ("pullstream-leaser", fetch),
        ("pullstream-listen", SubscriberClient.listen),
        ("pullstream-watch", lambda client: client.watch({TOPIC: "tail"}, print)),
    ],
)
def test_a_client_method_that_can_start_no_thread_raises_and_leaves_no_threads_behind(
    refused: str, begin: Callable[[SubscriberClient], object]
) -> None:
    with stage() as here:
        here.publish(b"x")
        before = set(threading.enumerate())
        with refusing(refused), pytest.raises(RuntimeError, match="can't start new thread"):
            begin(here.client)
        eventually(lambda: not started_since(before, named="pullstream"))
