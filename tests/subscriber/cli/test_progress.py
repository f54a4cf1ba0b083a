"""Waiting for a subscription: by number, by silence, or until it is stopped."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from pullstream.cli.progress import Progress
from tests.subscriber.clocks import WatchedClock

Run = Callable[..., "Future[Any]"]


@pytest.fixture
def run() -> Iterator[Run]:
    """Yield a function that calls another one on a thread."""
    with ThreadPoolExecutor() as pool:
        yield pool.submit


def test_a_command_with_a_message_limit_ends_after_its_last_message_was_processed(run: Run) -> None:
    """A begun message is not enough."""
    clock = WatchedClock()
    progress = Progress(2, clock=clock)
    assert progress.begin()
    assert progress.begin()
    progress.end()
    waiting = run(progress.wait)
    clock.wait_until_watched()
    assert not waiting.done()
    progress.end()
    waiting.result()


def test_a_command_with_a_message_limit_processes_no_message_beyond_the_limit(run: Run) -> None:
    """The message waits until everything is stopped."""
    progress = Progress(1)
    assert progress.begin()
    beyond = run(progress.begin)
    progress.end()
    progress.wait()
    assert not beyond.done()
    progress.stop()
    assert beyond.result() is False


def test_a_command_with_an_idle_time_ends_after_that_time_without_messages(run: Run) -> None:
    """The silence counts from the end of the last message."""
    clock = WatchedClock()
    progress = Progress(idle=10, clock=clock)
    clock.advance(8)
    assert progress.begin()
    progress.end()
    waiting = run(progress.wait)
    clock.wait_until_watched()
    clock.advance(9)
    assert not waiting.done()
    clock.advance(1)
    waiting.result()


def test_processing_a_message_does_not_count_as_idle_time_of_a_command(run: Run) -> None:
    """A running message prevents silence."""
    clock = WatchedClock()
    progress = Progress(idle=10, clock=clock)
    assert progress.begin()
    waiting = run(progress.wait)
    clock.wait_until_watched()
    clock.advance(100)
    assert not waiting.done()
    progress.end()
    clock.advance(10)
    waiting.result()


def test_a_stopped_command_processes_no_further_message() -> None:
    """There is nothing to wait for."""
    progress = Progress()
    progress.stop()
    progress.wait()
    assert not progress.begin()


def test_a_waiting_command_is_interrupted_by_a_signal_to_another_thread(run: Run) -> None:
    """Another thread gets the signal, so the waiting main thread is not woken.

    The same happens when a signal comes between the main thread's last look and its sleep.
    """
    clock = WatchedClock()
    progress = Progress(clock=clock)

    def send() -> None:
        clock.wait_until_watched()
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    previous = signal.signal(signal.SIGUSR1, lambda *_: progress.interrupt())
    try:
        sent = run(send)
        progress.wait()
        sent.result()
    finally:
        signal.signal(signal.SIGUSR1, previous)


def test_a_command_refuses_new_messages_only_after_stop_and_not_after_an_interrupt() -> None:
    """Only `stop` refuses messages, because a signal handler may do little."""
    progress = Progress()
    progress.interrupt()
    progress.wait()
    assert progress.begin()
