"""ForkBarrier: readers leave gRPC before a fork, and enter it again after it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from pullstream.runtime import fork_barrier
from pullstream.runtime.fork_barrier import ForkBarrier
from tests.subscriber.streaming.fakes import TIMEOUT
from tests.threads import on_threads


class WaitingReader:
    """Enters repeatedly, and waits inside until it is woken or told to end."""

    def __init__(self, barrier: ForkBarrier) -> None:
        self._barrier = barrier
        self._came = threading.Event()
        self._ended = False
        self.entered = threading.Semaphore(0)
        self.is_inside = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wake(self) -> None:
        self._came.set()

    def end(self) -> None:
        self._ended = True
        self.wake()
        self._thread.join(TIMEOUT)

    def _run(self) -> None:
        while not self._ended:
            self._barrier.enter(self)
            self.is_inside = True
            self.entered.release()
            self._came.wait(TIMEOUT)
            self._came.clear()
            self.is_inside = False
            self._barrier.leave(self)


class Call:
    """A call that ends when the test says so."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Call], None]] = []

    def add_done_callback(self, callback: Callable[[Call], None]) -> None:
        self._callbacks.append(callback)

    def end(self) -> None:
        for callback in self._callbacks:
            callback(self)


class StubbornReader:
    def wake(self) -> None:
        """Do nothing that the reader would notice."""


def test_a_fork_of_the_process_waits_for_the_answer_to_a_grpc_call_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new call waits for the fork."""
    monkeypatch.setattr(fork_barrier, "FORK_WAIT", TIMEOUT)
    barrier = ForkBarrier()
    answered, closed, second = threading.Event(), threading.Event(), threading.Event()

    def call() -> None:
        with barrier.waiting():
            under_way.set()
            assert answered.wait(TIMEOUT)
        with barrier.waiting():
            second.set()

    def fork() -> None:
        barrier.close()
        closed.set()

    under_way = threading.Event()
    threads = [threading.Thread(target=call), threading.Thread(target=fork)]
    threads[0].start()
    assert under_way.wait(TIMEOUT)
    threads[1].start()
    assert not closed.wait(0.05)
    answered.set()
    assert closed.wait(TIMEOUT)
    assert not barrier._inside
    barrier.open()
    assert second.wait(TIMEOUT)
    for thread in threads:
        thread.join(TIMEOUT)


def test_stream_reading_threads_pause_outside_grpc_during_a_fork_and_then_continue() -> None:
    """Two concurrent forks count as one: no reader enters before both are over."""
    barrier = ForkBarrier()
    readers = [WaitingReader(barrier) for _ in range(5)]
    try:
        for reader in readers:
            assert reader.entered.acquire(timeout=TIMEOUT)
        barrier.close()
        assert not any(reader.is_inside for reader in readers)
        barrier.close()
        barrier.open()
        assert not any(reader.entered.acquire(blocking=False) for reader in readers)
        barrier.open()
        for reader in readers:
            assert reader.entered.acquire(timeout=TIMEOUT)
    finally:
        for reader in readers:
            reader.end()


def test_a_stream_reader_that_cannot_be_woken_delays_a_fork_only_for_a_moment() -> None:
    """The fork waits for it only for a moment."""
    barrier = ForkBarrier()
    barrier.enter(StubbornReader())
    barrier.close()
    barrier.open()


def test_stream_readers_enter_grpc_without_waiting_while_no_fork_is_in_progress() -> None:
    """Readers enter and leave without waiting."""
    barrier = ForkBarrier()
    reader = StubbornReader()
    for _ in range(3):
        barrier.enter(reader)
        barrier.leave(reader)


def test_a_fork_of_the_process_waits_for_the_end_of_an_asynchronous_grpc_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that began the call does other work meanwhile."""
    monkeypatch.setattr(fork_barrier, "FORK_WAIT", TIMEOUT)
    barrier = ForkBarrier()
    call = barrier.begin(Call)
    closed = threading.Event()

    def fork() -> None:
        barrier.close()
        closed.set()

    with on_threads(fork):
        assert not closed.wait(0.05)
        call.end()
        assert closed.wait(TIMEOUT)


def test_a_grpc_call_that_begins_during_a_fork_waits_for_the_end_of_the_fork() -> None:
    """No thread enters gRPC during the fork."""
    barrier = ForkBarrier()
    barrier.close()
    begun = threading.Event()

    def begin() -> None:
        barrier.begin(Call)
        begun.set()

    with on_threads(begin):
        assert not begun.wait(0.05)
        barrier.open()
        assert begun.wait(TIMEOUT)


def test_a_fork_does_not_wait_for_a_grpc_call_that_could_not_begin() -> None:
    """The channel is closed, for example."""
    barrier = ForkBarrier()

    def refused() -> Call:
        raise ValueError("closed")

    with pytest.raises(ValueError, match="closed"):
        barrier.begin(refused)
    assert not barrier._inside
