"""Schedulers: busy workers, no message behind a slow one, a clean shutdown."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterator
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pullstream import Message, ThreadScheduler
from pullstream.scheduling.scheduler import DEFAULT_WORKERS, Scheduler
from tests.subscriber.streaming.fakes import TIMEOUT, eventually, ids, message
from tests.threads import started_since


def messages(count: int) -> list[Message]:
    return [message(str(number)) for number in range(count)]


def workers_since(before: set[threading.Thread]) -> set[threading.Thread]:
    return started_since(before, named="pullstream-worker")


class Slow:
    """A callback that blocks until it is released."""

    def __init__(self) -> None:
        self.begun: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.release = threading.Event()

    def __call__(self, one: Message) -> None:
        self.begun.put(one.ack_id)
        assert self.release.wait(TIMEOUT)
        self.ended.put(one.ack_id)

    def wait_for(self, count: int) -> list[str]:
        return [self.begun.get(timeout=TIMEOUT) for _ in range(count)]


# ---- the SDK's own threads ---------------------------------------------------------------------


def test_a_burst_of_messages_runs_on_all_worker_threads_of_the_scheduler_at_a_time() -> None:
    """The barrier opens ten times, each time with ten concurrent callbacks."""
    together = threading.Barrier(10)
    done = threading.Semaphore(0)

    def callback(one: Message) -> None:
        together.wait(TIMEOUT)
        done.release()

    scheduler = ThreadScheduler(max_workers=10)
    scheduler.schedule_many(callback, messages(100))
    for _ in range(100):
        assert done.acquire(timeout=TIMEOUT)
    scheduler.shutdown(await_msg_callbacks=True)


def test_a_slow_callback_delays_no_message_while_another_scheduler_worker_is_idle() -> None:
    """Free workers take the messages. Messages are not assigned in advance."""
    slow = Slow()
    done: queue.SimpleQueue[str] = queue.SimpleQueue()
    scheduler = ThreadScheduler(max_workers=2)
    scheduler.schedule(slow, message("slow"))
    slow.wait_for(1)
    scheduler.schedule_many(lambda one: done.put(one.ack_id), messages(50))
    assert [done.get(timeout=TIMEOUT) for _ in range(50)] == ids(messages(50))
    assert slow.ended.empty()
    slow.release.set()
    scheduler.shutdown(await_msg_callbacks=True)


def test_the_thread_scheduler_starts_no_more_worker_threads_than_configured() -> None:
    """The default is ten, and there are none before the first work."""
    before = set(threading.enumerate())
    scheduler, slow = ThreadScheduler(), Slow()
    assert workers_since(before) == set()
    scheduler.schedule_many(slow, messages(50))
    slow.wait_for(DEFAULT_WORKERS)
    scheduler.schedule(slow, message("one more"))
    assert len(workers_since(before)) == DEFAULT_WORKERS
    assert slow.begun.empty()
    slow.release.set()
    assert len(scheduler.shutdown(await_msg_callbacks=True)) <= 41
    assert workers_since(before) == set()


def test_the_thread_scheduler_runs_any_function_with_any_arguments() -> None:
    """The official client's scheduler works the same way."""
    done: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
    scheduler = ThreadScheduler(max_workers=1)
    scheduler.schedule(lambda *args: done.put(args), 1, "two")
    assert done.get(timeout=TIMEOUT) == (1, "two")
    scheduler.shutdown()


def test_an_exception_of_a_scheduled_function_is_logged_and_its_worker_thread_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The exception is logged, and the only worker continues."""
    done = threading.Event()

    def leave() -> None:
        raise SystemExit(1)

    scheduler = ThreadScheduler(max_workers=1)
    with caplog.at_level(logging.ERROR):
        scheduler.schedule(leave)
        scheduler.schedule(done.set)
        assert done.wait(TIMEOUT)
    assert len(caplog.records) == 1
    scheduler.shutdown()


def test_the_result_of_a_scheduler_shutdown_is_the_list_of_messages_not_begun() -> None:
    """Running callbacks may finish later, and then their threads end too."""
    before = set(threading.enumerate())
    scheduler, slow = ThreadScheduler(max_workers=2), Slow()
    scheduler.schedule_many(slow, messages(5))
    slow.wait_for(2)
    workers = workers_since(before)
    assert len(workers) == 2
    assert ids(scheduler.shutdown()) == ["2", "3", "4"]
    assert slow.ended.empty()
    slow.release.set()
    for thread in workers:
        thread.join(TIMEOUT)
        assert not thread.is_alive()
    assert slow.begun.empty()
    assert scheduler.shutdown() == []


def test_scheduler_shutdown_can_wait_for_running_callbacks() -> None:
    """The shutdown waits only for running callbacks."""
    before = set(threading.enumerate())
    scheduler, slow = ThreadScheduler(max_workers=2), Slow()
    scheduler.schedule_many(slow, messages(5))
    slow.wait_for(2)
    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(scheduler.shutdown, await_msg_callbacks=True)
        with pytest.raises(futures.TimeoutError):
            stopping.result(timeout=0.05)
        slow.release.set()
        assert ids(stopping.result(TIMEOUT)) == ["2", "3", "4"]
    assert slow.ended.qsize() == 2
    assert workers_since(before) == set()


# ---- the user's executor -----------------------------------------------------------------------


def test_the_scheduler_runs_callbacks_on_the_users_executor() -> None:
    """All threads of the executor are used."""
    together = threading.Barrier(5)
    names: queue.SimpleQueue[str] = queue.SimpleQueue()

    def callback(one: Message) -> None:
        together.wait(TIMEOUT)
        names.put(threading.current_thread().name)

    before = set(threading.enumerate())
    with ThreadPoolExecutor(5, thread_name_prefix="mine") as executor:
        scheduler = ThreadScheduler(executor)
        scheduler.schedule_many(callback, messages(20))
        found = [names.get(timeout=TIMEOUT) for _ in range(20)]
        started = started_since(before, named="mine")
        scheduler.shutdown(await_msg_callbacks=True)
    assert all(name.startswith("mine") for name in found)
    assert len(started) == 5


def test_scheduler_shutdown_does_not_shut_down_the_users_executor() -> None:
    """Waiting messages are returned and not begun later. Other work of the executor continues."""
    with ThreadPoolExecutor(1) as executor:
        scheduler, slow = ThreadScheduler(executor), Slow()
        scheduler.schedule_many(slow, messages(3))
        slow.wait_for(1)
        assert ids(scheduler.shutdown()) == ["1", "2"]
        slow.release.set()
        assert executor.submit(lambda: "still here").result(TIMEOUT) == "still here"
        assert slow.begun.empty()


def test_scheduler_shutdown_can_wait_for_callbacks_on_the_users_executor() -> None:
    """The shutdown does not wait for the executor's other work."""
    with ThreadPoolExecutor(3) as executor:
        scheduler, slow = ThreadScheduler(executor), Slow()
        scheduler.schedule_many(slow, messages(2))
        slow.wait_for(2)
        executor.submit(slow.release.wait, TIMEOUT)
        with ThreadPoolExecutor(1) as pool:
            stopping = pool.submit(scheduler.shutdown, await_msg_callbacks=True)
            with pytest.raises(futures.TimeoutError):
                stopping.result(timeout=0.05)
            slow.release.set()
            assert stopping.result(TIMEOUT) == []
        assert slow.ended.qsize() == 2


# ---- both --------------------------------------------------------------------------------------


@pytest.mark.parametrize("foreign", [False, True])
def test_the_thread_scheduler_knows_whether_the_current_thread_runs_its_callbacks(
    foreign: bool,
) -> None:
    """A close inside a callback can thus avoid waiting for itself."""
    answers: queue.SimpleQueue[bool] = queue.SimpleQueue()
    with ThreadPoolExecutor(1) as executor:
        scheduler = ThreadScheduler(executor) if foreign else ThreadScheduler(max_workers=1)
        scheduler.schedule(lambda: answers.put(scheduler.runs_here()))
        assert answers.get(timeout=TIMEOUT) is True
        assert not scheduler.runs_here()
        scheduler.shutdown(await_msg_callbacks=True)
        assert not executor.submit(scheduler.runs_here).result(TIMEOUT)


@pytest.mark.parametrize("foreign", [False, True])
def test_a_thread_scheduler_that_is_shut_down_refuses_to_schedule_callbacks(foreign: bool) -> None:
    """A second subscription on it would never run a callback. The error names the remedy."""
    with ThreadPoolExecutor(1) as executor:
        scheduler = ThreadScheduler(executor) if foreign else ThreadScheduler()
        scheduler.shutdown()
        with pytest.raises(RuntimeError, match="each subscription needs its own"):
            scheduler.schedule(print)
        with pytest.raises(RuntimeError, match="each subscription needs its own"):
            scheduler.schedule_many(print, messages(1))


@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize("busy", [False, True])
def test_a_callback_scheduled_during_the_shutdown_of_the_scheduler_does_not_begin(
    foreign: bool, busy: bool
) -> None:
    """The message is returned with all unsettled ones, even if a worker is still busy."""
    slow = Slow()
    late: list[Message] = []
    with ThreadPoolExecutor(1) as executor:
        before = set(threading.enumerate())
        scheduler = ThreadScheduler(executor) if foreign else ThreadScheduler(max_workers=1)
        if busy:
            scheduler.schedule(slow, message("running"))
            slow.wait_for(1)

        class Unlucky(list[Message]):
            """A list whose use triggers the shutdown, after the check and before the messages."""

            def __iter__(self) -> Iterator[Message]:
                scheduler.shutdown()
                yield from super().__iter__()

        scheduler.schedule_many(late.append, Unlucky(messages(2)))
        workers = workers_since(before)
        slow.release.set()
    for thread in workers:
        thread.join(TIMEOUT)
    assert late == []


@pytest.mark.parametrize("foreign", [False, True])
def test_the_thread_scheduler_reports_the_numbers_of_waiting_and_running_callbacks(
    foreign: bool,
) -> None:
    """The numbers are right during the shutdown as well."""
    with ThreadPoolExecutor(2) as executor:
        scheduler = ThreadScheduler(executor) if foreign else ThreadScheduler(max_workers=2)
        slow = Slow()
        assert (scheduler.waiting, scheduler.running) == (0, 0)
        scheduler.schedule_many(slow, messages(5))
        slow.wait_for(2)
        assert (scheduler.waiting, scheduler.running) == (3, 2)
        scheduler.shutdown()
        assert (scheduler.waiting, scheduler.running) == (0, 2)
        slow.release.set()
        scheduler.shutdown(await_msg_callbacks=True)
        assert (scheduler.waiting, scheduler.running) == (0, 0)


def test_a_thread_scheduler_with_idle_workers_reports_no_running_callbacks() -> None:
    """Sleeping workers do not count as running."""
    scheduler, slow = ThreadScheduler(max_workers=3), Slow()
    slow.release.set()
    scheduler.schedule_many(slow, messages(20))
    eventually(lambda: slow.ended.qsize() == 20)
    eventually(lambda: scheduler.running == 0)
    scheduler.shutdown()


def test_the_thread_scheduler_refuses_an_invalid_number_of_worker_threads() -> None:
    """The error gives the name and the limit. An executor has its own size."""
    with pytest.raises(ValueError, match="max_workers is 0; it must be at least 1"):
        ThreadScheduler(max_workers=0)
    with ThreadPoolExecutor(1) as executor, pytest.raises(ValueError, match="either executor"):
        ThreadScheduler(executor, max_workers=3)


def test_a_scheduler_class_of_the_user_needs_only_the_methods_schedule_and_shutdown() -> None:
    """Messages are scheduled one by one, and the base class reports no threads."""

    class Plain(Scheduler):
        def __init__(self) -> None:
            self.scheduled: list[tuple[Any, ...]] = []

        def schedule(self, callback: Any, *args: Any) -> None:
            self.scheduled.append(args)

        def shutdown(self, await_msg_callbacks: bool = False) -> list[Message]:
            return []

    plain, some = Plain(), messages(2)
    plain.schedule_many(print, some)
    assert plain.scheduled == [(some[0],), (some[1],)]
    assert not plain.runs_here()
    assert (plain.waiting, plain.running) == (0, 0)
