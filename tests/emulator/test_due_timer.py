"""Callbacks on the broker's clock."""

from __future__ import annotations

import asyncio
import threading

from pullstream_emulator.due_timer import Timer
from pullstream_protocol.clock import ManualClock, SystemClock
from tests.emulator.wire import TIMEOUT


class Patient(SystemClock):
    """Real time with long waits, so that nothing reads the clock before a deadline."""

    def timeout(self, deadline: float | None) -> float | None:
        return None if deadline is None else max(deadline - self.monotonic(), 0.0)


async def test_alarms_of_an_event_loop_timer_fire_in_the_order_of_their_times() -> None:
    """Each alarm runs at its own time, unless it was cancelled."""
    clock = ManualClock()
    came: list[str] = []
    timer = Timer(clock)
    timer.call_after(3, lambda: came.append("three"))
    timer.call_after(1, lambda: came.append("one"))
    forgotten = timer.call_after(2, lambda: came.append("two"))
    timer.cancel(forgotten)
    clock.advance(0.9)
    assert came == []
    clock.advance(0.1)
    assert came == ["one"]
    clock.advance(5)
    assert came == ["one", "three"]
    timer.close()


async def test_a_clock_advance_from_another_thread_returns_after_due_timer_alarms_fired() -> None:
    """The rule is the same for the rest of the broker."""
    clock = ManualClock()
    came: list[int] = []
    timer = Timer(clock)
    loop_thread = threading.get_ident()
    timer.call_after(1, lambda: came.append(threading.get_ident()))
    await asyncio.to_thread(clock.advance, 1)
    assert came == [loop_thread]
    timer.close()


async def test_a_timer_alarm_in_the_near_future_is_not_delayed_by_a_far_alarm_set_before() -> None:
    """The later alarm does not keep the loop waiting."""
    timer = Timer(Patient())
    came = asyncio.Event()
    timer.call_after(600, came.clear)
    timer.call_after(0.01, came.set)
    await asyncio.wait_for(came.wait(), TIMEOUT)
    timer.close()


async def test_the_callback_of_a_timer_alarm_may_set_another_alarm() -> None:
    """One pause can follow another."""
    timer = Timer(Patient())
    came = asyncio.Event()

    def set_the_next() -> None:
        timer.call_after(0.01, came.set)

    timer.call_after(0.01, set_the_next)
    await asyncio.wait_for(came.wait(), TIMEOUT)
    timer.close()


def test_a_closed_timer_fires_no_alarms_when_its_clock_advances() -> None:
    """The clock may outlive the event loop."""
    clock = ManualClock()
    came: list[str] = []

    async def scenario() -> None:
        timer = Timer(clock)
        timer.call_after(1, lambda: came.append("late"))
        timer.close()

    asyncio.run(scenario())
    clock.advance(1)
    assert came == []
