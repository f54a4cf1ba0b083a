"""The reader thread runs fast callbacks, and a single slow one does no harm."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from pullstream import Message, StreamingPullFuture, ThreadScheduler
from pullstream.futures import ShutdownMode
from pullstream.scheduling.stall_monitor import STALL_MONITOR
from pullstream.scheduling.worker_pool import WorkerPool
from tests.subscriber.behaviour.stage import SUBSCRIPTION, Stage, stage
from tests.subscriber.streaming.fakes import TIMEOUT, eventually


class Brisk:
    """A subscription whose callbacks are fast, except one that blocks on request.

    The reader will handle the next message.
    """

    def __init__(self, here: Stage, pool: WorkerPool) -> None:
        self.here = here
        self.pool = pool
        self.handled: list[tuple[bytes, str]] = []
        self.stays = threading.Event()
        self.may_leave = threading.Event()
        self.future: StreamingPullFuture
        self.closed: Future[bool] = Future()

    def __call__(self, message: Message) -> None:
        if message.data == b"stay":
            self.stays.set()
            assert self.may_leave.wait(TIMEOUT)
        if message.data == b"close":
            self.closed.set_result(self.future.close(mode="drain"))
        self.handled.append((message.data, threading.current_thread().name))
        message.ack()

    @property
    def data(self) -> list[bytes]:
        return [data for data, _ in self.handled]

    def get_going(self) -> None:
        def is_brisk() -> bool:
            before = len(self.handled)
            self.here.publish(*[b"x"] * 50)
            eventually(lambda: len(self.handled) == before + 50)
            return self.pool._pace.is_fast

        eventually(is_brisk)
        eventually(lambda: self.pool.running == 0)
        self.handled.clear()
        self.pool._stall._quiet_checks = -1_000_000
        self.pool._stall.is_watched = True
        STALL_MONITOR.add(self.pool)

    def hold_up(self) -> None:
        """Block the reader in a callback."""
        self.here.publish(b"stay", key="key")
        assert self.stays.wait(TIMEOUT)

    @property
    def stayed_on(self) -> str:
        """Return the thread that ran the blocked callback."""
        return next(name for data, name in self.handled if data == b"stay")


@pytest.fixture
def brisk() -> Iterator[Brisk]:
    with stage(enable_message_ordering=True) as here:
        scheduler = ThreadScheduler()
        assert isinstance(scheduler._pool, WorkerPool)
        brisk = Brisk(here, scheduler._pool)
        brisk.future = here.client.subscribe(SUBSCRIPTION, brisk, scheduler=scheduler)
        brisk.get_going()
        yield brisk
        brisk.may_leave.set()


def test_the_thread_that_reads_the_stream_runs_fast_callbacks_without_a_worker_thread(
    brisk: Brisk,
) -> None:
    """No worker wakes."""
    brisk.here.publish(*[b"x"] * 50)
    eventually(lambda: brisk.here.backlog == 0)
    assert not any(name.startswith("pullstream-worker") for _, name in brisk.handled)
    assert len(brisk.handled) == 50


def test_another_thread_reads_the_stream_while_its_reader_thread_runs_a_slow_callback(
    brisk: Brisk,
) -> None:
    """All other messages are handled meanwhile, and the slow one is acknowledged in the end."""
    brisk.hold_up()
    for _ in range(10):
        brisk.here.publish(*[b"x"] * 10)
    eventually(lambda: brisk.here.backlog == 1)
    brisk.may_leave.set()
    eventually(lambda: brisk.here.backlog == 0)
    assert not brisk.stayed_on.startswith("pullstream-worker")
    assert brisk.future.running()


def test_messages_of_a_key_run_in_order_if_the_reader_thread_is_replaced(brisk: Brisk) -> None:
    """The next reader's messages of the key wait for the callback in the first reader."""
    brisk.hold_up()
    numbers = [b"%d" % number for number in range(100)]
    brisk.here.publish(*numbers, key="key")
    brisk.here.publish(b"other")
    eventually(lambda: brisk.data == [b"other"])
    brisk.may_leave.set()
    eventually(lambda: brisk.here.backlog == 0)
    assert brisk.data == [b"other", b"stay", *numbers]


@pytest.mark.parametrize("mode", ["drain", "nack"])
def test_closing_a_subscription_with_a_drain_waits_for_a_callback_on_its_reader_thread(
    brisk: Brisk, mode: ShutdownMode
) -> None:
    """A drain waits for the callback, and its acknowledgement is sent.

    Without a drain, the close does not wait for either, and the message is returned.
    """
    brisk.hold_up()
    closing = threading.Thread(target=brisk.future.close, args=(TIMEOUT, mode))
    closing.start()
    eventually(brisk.future.cancelled)
    if mode == "drain":
        closing.join(0.05)
        assert closing.is_alive()
        brisk.may_leave.set()
    closing.join(TIMEOUT)
    assert brisk.future.result(TIMEOUT) is True
    assert brisk.here.free() == ([] if mode == "drain" else [b"stay"])


def test_a_callback_on_the_reader_thread_may_close_its_subscription_without_a_deadlock(
    brisk: Brisk,
) -> None:
    """The close does not wait for its own callback."""
    brisk.here.publish(b"close")
    assert isinstance(brisk.closed.result(TIMEOUT), bool)
    assert brisk.future.result(TIMEOUT) is True
    assert brisk.here.backlog == 0
    assert not brisk.handled[-1][1].startswith("pullstream-worker")
