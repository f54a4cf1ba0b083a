"""Flow control: limits hold, block no possible work, and never lead to a deadlock."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future

import pytest

from pullstream import FlowControl, Hooks, Message, StreamingPullFuture
from pullstream.streaming.settings import ReleaseAfter
from tests.subscriber.behaviour.stage import SUBSCRIPTION, Gate, Log, Stage
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

pytestmark = pytest.mark.subscription(enable_message_ordering=True)


class AtOnce:
    """Measures the number of concurrent callbacks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self.most = 0

    def __call__(self, message: Message) -> None:
        with self._lock:
            self._running += 1
            self.most = max(self.most, self._running)
        # Other callbacks get the chance to begin.
        threading.Event().wait(0.001)
        with self._lock:
            self._running -= 1
        message.ack()


@pytest.mark.parametrize("legacy", [False, True], ids=["server keeps", "client keeps"])
def test_a_message_larger_than_the_max_bytes_of_flow_control_is_received_alone(
    here: Stage, legacy: bool
) -> None:
    """Nothing else is received meanwhile, and everything continues afterwards."""
    gate = Gate()
    future = here.client.subscribe(
        SUBSCRIPTION, gate, FlowControl(max_bytes=1_000), use_legacy_flow_control=legacy
    )
    here.publish(b"x" * 100_000)
    gate.wait_for(1)
    here.publish(b"small")
    here.publish(b"y" * 100_000)
    if legacy:
        eventually(lambda: here.free() == [])
    else:
        assert here.free() == [b"small", b"y" * 100_000]
    assert future.statistics().received == 1
    assert future.statistics().load > 1
    gate.open(3)
    eventually(lambda: here.backlog == 0)
    assert {data[:1] for data in gate.data} == {b"x", b"s", b"y"}


@pytest.mark.parametrize("key", ["", "k"])
def test_with_max_messages_of_one_many_workers_receive_all_messages_one_at_a_time(
    here: Stage, key: str
) -> None:
    """Messages come one at a time to the last."""
    at_once = AtOnce()
    future = here.client.subscribe(
        SUBSCRIPTION, at_once, FlowControl(max_messages=1), max_workers=20
    )
    here.publish(*[b"x"] * 50, key=key)
    eventually(lambda: here.backlog == 0)
    assert at_once.most == 1
    assert future.statistics().received == 50


@pytest.mark.parametrize("release_after", ["callback", "ack"])
@pytest.mark.parametrize("max_messages", [1, 2, 3])
@pytest.mark.parametrize("legacy", [False, True], ids=["server keeps", "client keeps"])
def test_messages_with_ordering_keys_never_deadlock_in_a_tiny_flow_control_window(
    here: Stage, release_after: ReleaseAfter, max_messages: int, legacy: bool
) -> None:
    """Held messages fill the window together with the message that they wait for."""
    log = Log()
    here.publish(*[b"%d" % number for number in range(30)], key="long")
    for number in range(10):
        for key in "abc":
            here.publish(b"%d" % number, key=key)
    here.client.subscribe(
        SUBSCRIPTION,
        log,
        FlowControl(max_messages=max_messages),
        use_legacy_flow_control=legacy,
        release_after=release_after,
    )
    eventually(lambda: here.backlog == 0)
    by_key: dict[str, list[int]] = {}
    for message in log.messages:
        by_key.setdefault(message.ordering_key, []).append(int(message.data))
    assert by_key == {"long": [*range(30)], **{key: [*range(10)] for key in "abc"}}


def test_messages_that_wait_behind_a_running_callback_of_their_key_count_for_flow_control(
    here: Stage,
) -> None:
    """The window is full of one key, and no more of it is received."""
    gate = Gate()
    future = here.client.subscribe(SUBSCRIPTION, gate, FlowControl(max_messages=10))
    here.publish(*[b"x"] * 100, key="k")
    gate.wait_for(1)
    eventually(lambda: future.statistics().received == 10)
    statistics = future.statistics()
    assert (statistics.leased, statistics.held, statistics.load) == (10, 9, 1.0)
    here.publish(*[b"free"] * 7)
    assert here.free() == [b"free"] * 7
    gate.open(107)
    eventually(lambda: here.backlog == 0)
    assert len(gate.messages) == 107


def test_the_client_reads_at_most_max_messages_from_a_server_that_sends_without_limit(
    here: Stage,
) -> None:
    """The server has no limit and sends everything. Messages above the client's limit wait."""
    gate, peaks = Gate(), list[float]()

    class Peaks(Hooks):
        def received(self, subscription: str, messages: Sequence[Message]) -> None:
            peaks.append(known.result(TIMEOUT).statistics().load)

    known: Future[StreamingPullFuture] = Future()
    known.set_result(
        here.client.subscribe(
            SUBSCRIPTION,
            gate,
            FlowControl(max_messages=10),
            use_legacy_flow_control=True,
            hooks=Peaks(),
        )
    )
    for number in range(60):
        here.publish(b"%d" % number)
    # All messages are on their way.
    eventually(lambda: here.free() == [])
    gate.wait_for(10)
    gate.open(60)
    eventually(lambda: here.backlog == 0)
    assert max(peaks) <= 1.0
    assert len(gate.messages) == 60


def test_all_workers_handle_messages_of_one_response_concurrently(here: Stage) -> None:
    """A hundred messages of one response on ten workers: all ten meet ten times."""
    together = threading.Barrier(10)
    rounds = threading.Semaphore(0)

    def meet(message: Message) -> None:
        if together.wait(TIMEOUT) == 0:
            rounds.release()
        message.ack()

    here.publish(*[b"x"] * 100)
    here.client.subscribe(SUBSCRIPTION, meet, max_workers=10)
    for _ in range(10):
        assert rounds.acquire(timeout=TIMEOUT)
    eventually(lambda: here.backlog == 0)


def test_a_slow_callback_delays_no_message_while_another_worker_is_free(here: Stage) -> None:
    """One worker blocks from the beginning, and the other does all the rest."""
    stuck = threading.Event()
    first = threading.Lock()

    def handle(message: Message) -> None:
        if first.acquire(blocking=False):
            assert stuck.wait(TIMEOUT)
        message.ack()

    here.client.subscribe(SUBSCRIPTION, handle, max_workers=2)
    here.publish(*[b"x"] * 100)
    eventually(lambda: here.backlog == 1)
    stuck.set()
    eventually(lambda: here.backlog == 0)


def test_the_server_keeps_further_messages_while_max_messages_are_unsettled(here: Stage) -> None:
    """The limit is max_messages, and others come as soon as some are finished."""
    gate = Gate()
    here.publish(*[b"x"] * 12)
    here.client.subscribe(SUBSCRIPTION, gate, FlowControl(max_messages=5))
    gate.wait_for(5)
    assert len(here.free()) == 7
    gate.open(12)
    eventually(lambda: here.backlog == 0)
    assert len(gate.messages) == 12


def test_with_legacy_flow_control_the_client_stops_reading_at_max_messages(here: Stage) -> None:
    """With legacy flow control the server has no limit, so the reader pauses."""
    gate = Gate()
    here.publish(*[b"x"] * 5, key="slow")
    here.client.subscribe(
        SUBSCRIPTION, gate, FlowControl(max_messages=5), use_legacy_flow_control=True
    )
    gate.wait_for(1)
    here.publish(*[b"free"] * 7)
    eventually(lambda: here.free() == [])
    assert len(gate.messages) == 1
    gate.open(12)
    eventually(lambda: here.backlog == 0)
    assert len(gate.messages) == 12
