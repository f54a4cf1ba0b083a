"""The stall monitor of worker pools: it runs while it is needed, and forgets no pool."""

from __future__ import annotations

import queue
import threading

import pytest

from pullstream.scheduling.stall_monitor import StallMonitor
from tests.subscriber.streaming.fakes import TIMEOUT, eventually


class Pool:
    """Answers each check as the test says, and records it."""

    def __init__(self, *answers: bool) -> None:
        self.answers: queue.SimpleQueue[bool] = queue.SimpleQueue()
        for answer in answers:
            self.answers.put(answer)
        self.checks = 0
        # For each check, whether there was no other pool.
        self.alone: list[bool] = []

    def check(self, *, is_alone: bool) -> bool:
        self.checks += 1
        self.alone.append(is_alone)
        return self.answers.get(timeout=TIMEOUT)


def watchers() -> int:
    return sum(thread.name == "pullstream-stall-monitor" for thread in threading.enumerate())


def test_the_stall_monitor_checks_a_worker_pool_until_the_pool_needs_no_more_checks() -> None:
    """One thread checks all pools and ends with the last of them."""
    watch, one, other = StallMonitor(), Pool(True, True, False), Pool(True, False)
    before = watchers()
    watch.add(one)
    watch.add(one)
    watch.add(other)
    eventually(lambda: (one.checks, other.checks) == (3, 2))
    eventually(lambda: watchers() == before)
    again = Pool(False)
    watch.add(again)
    eventually(lambda: again.checks == 1)


def test_the_stall_monitor_tells_a_worker_pool_whether_it_is_the_only_monitored_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The test checks instead of the thread."""
    monkeypatch.setattr(threading.Thread, "start", lambda self: None)
    watch, one, other = StallMonitor(), Pool(True, False), Pool(False)
    assert not watch.is_running
    watch.add(one)
    watch.add(other)
    assert watch.is_running
    assert watch.check_pools()
    assert not watch.check_pools()
    assert not watch.is_running
    assert one.alone == [False, True]
    assert other.alone == [False]


def test_the_stall_monitor_checks_a_worker_pool_that_registers_again_during_its_removal() -> None:
    """Only one thread changes the list at a time, so a new pool is added after the removal."""
    watch = StallMonitor()
    adding: list[threading.Thread] = []

    class Asking(Pool):
        def check(self, *, is_alone: bool) -> bool:
            if self.checks == 0:
                adding.append(threading.Thread(target=watch.add, args=(self,)))
                adding[0].start()
            return super().check(is_alone=is_alone)

    pool = Asking(False, False)
    watch.add(pool)
    eventually(lambda: pool.checks == 2)
    adding[0].join(TIMEOUT)


def test_the_stall_monitor_starts_a_new_thread_in_a_forked_child_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread does not exist in the child, and a held lock would never be released."""
    watch = StallMonitor()
    monkeypatch.setattr(threading.Thread, "start", lambda self: None)
    watch.add(Pool())
    monkeypatch.undo()
    watch.__init__()  # type: ignore[misc]
    pool = Pool(False)
    watch.add(pool)
    eventually(lambda: pool.checks == 1)
