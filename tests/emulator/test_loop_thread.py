"""The event loop shared by the emulators of a process. It ends with the last of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.loop_thread import LoopThread


@pytest.fixture(autouse=True)
def a_loop_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a loop that is not shared with emulators of other tests."""
    monkeypatch.setattr(LoopThread, "_current", None)
    monkeypatch.setattr(LoopThread, "_users", 0)


def leave_running(task: Callable[[], Coroutine[None, None, None]]) -> asyncio.Task[None]:
    async def begin() -> asyncio.Task[None]:
        return asyncio.create_task(task())

    return LoopThread.current().run(begin())


async def many_turns() -> None:
    for _ in range(10_000):
        await asyncio.sleep(0)


async def for_ever() -> None:
    await asyncio.Event().wait()


def test_a_stopping_event_loop_waits_for_tasks_that_end_soon() -> None:
    """An example is the task of a cancelled call.

    Python reports tasks that are destroyed while pending.
    """
    with Emulator():
        last = leave_running(many_turns)
    assert last.done()
    assert last.exception() is None


def test_a_stopping_event_loop_cancels_tasks_that_do_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cancellation keeps the shutdown within its time limit."""
    monkeypatch.setattr("pullstream_emulator.loop_thread._LAST_TASKS", 0.01)
    with Emulator():
        last = leave_running(for_ever)
    assert last.cancelled()
