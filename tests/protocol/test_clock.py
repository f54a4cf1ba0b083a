"""Clocks: real time, time frozen by freezegun, and time moved by a test."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from freezegun import freeze_time

from pullstream_protocol.clock import MAX_WAIT, SYSTEM_CLOCK, ManualClock, SystemClock
from tests.threads import on_threads

START = "2030-01-01 00:00:00"
START_SECONDS = 1_893_456_000.0


def read_here(read: Callable[[], float]) -> float:
    return read()


def read_as_the_target_of_a_thread(read: Callable[[], float]) -> float:
    """Read the clock as close to `threading` on the stack as possible."""
    times: list[float] = []

    class Reader(threading.Thread):
        def run(self) -> None:
            times.append(read())

    reader = Reader()
    reader.start()
    reader.join()
    return times[0]


def read_in_a_pool(read: Callable[[], float]) -> float:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(read).result()


def read_in_a_timer(read: Callable[[], float]) -> float:
    times: list[float] = []
    timer = threading.Timer(0.0, lambda: times.append(read()))
    timer.start()
    timer.join()
    return times[0]


PLACES = [read_here, read_as_the_target_of_a_thread, read_in_a_pool, read_in_a_timer]


@pytest.mark.parametrize("place", PLACES)
def test_a_clock_read_in_any_module_is_frozen_by_freezegun(
    place: Callable[[Callable[[], float]], float],
) -> None:
    """Alone, freezegun would return real time near the bottom of a thread's stack."""
    clock = SystemClock()
    with freeze_time(START) as frozen:
        assert place(clock.now) == START_SECONDS
        before = place(clock.monotonic)
        frozen.tick(timedelta(seconds=300))
        assert place(clock.now) == START_SECONDS + 300
        assert place(clock.monotonic) - before == pytest.approx(300)


def test_the_system_clock_advances_in_real_time_without_freezegun() -> None:
    """Monotonic time neither stops nor goes back."""
    before = SYSTEM_CLOCK.monotonic()
    while SYSTEM_CLOCK.monotonic() == before:
        pass
    assert SYSTEM_CLOCK.monotonic() > before


def test_system_clock_time_continues_without_a_jump_when_freezegun_starts_and_ends() -> None:
    """The values of frozen and of real monotonic time differ by more than a billion seconds."""
    clock = SystemClock()
    before = clock.monotonic()
    with freeze_time(START) as frozen:
        started = clock.monotonic()
        assert 0 <= started - before < 60
        assert clock.monotonic() == started
        frozen.tick(timedelta(seconds=5))
        deadline = clock.monotonic() + 1
        assert deadline - started == pytest.approx(6)
    assert 0 <= clock.monotonic() - (deadline - 1) < 60


def test_monotonic_time_of_the_system_clock_does_not_go_back_with_frozen_wall_time() -> None:
    clock = SystemClock()
    with freeze_time(START) as frozen:
        before = clock.monotonic()
        frozen.move_to("1990-01-01")
        assert clock.monotonic() == pytest.approx(before)
        frozen.tick(timedelta(seconds=3))
        assert clock.monotonic() == pytest.approx(before + 3)
    with freeze_time("1980-01-01"):
        assert clock.monotonic() >= before + 3


def test_a_wait_on_the_system_clock_has_a_limited_timeout_to_notice_time_jumps() -> None:
    """A deadline is noticed soon after frozen time was moved past it."""
    clock = SystemClock()
    with freeze_time(START):
        now = clock.monotonic()
        assert clock.timeout(now + 3600) == MAX_WAIT
        assert clock.timeout(now + 0.25) == pytest.approx(0.25)
        assert clock.timeout(now) == 0.0
        assert clock.timeout(now - 1) == 0.0
        assert clock.timeout(None) is None


def test_the_system_clock_never_calls_its_registered_wakers() -> None:
    """The clock accepts wakers because every clock does."""
    woken: list[str] = []
    clock = SystemClock()
    waker = lambda: woken.append("woken")  # noqa: E731
    clock.add_waker(waker)
    with freeze_time(START) as frozen:
        frozen.tick(timedelta(hours=1))
    clock.remove_waker(waker)
    assert woken == []


def test_a_manual_clock_advances_only_by_advance() -> None:
    """Wall and monotonic time advance together."""
    clock = ManualClock(start=1000.0)
    assert (clock.now(), clock.monotonic()) == (1000.0, 0.0)
    clock.advance(2.5)
    clock.advance(0)
    assert (clock.now(), clock.monotonic()) == (1002.5, 2.5)


def test_advancing_a_manual_clock_by_a_negative_time_is_refused() -> None:
    """The error has the requested step, and the time is unchanged."""
    clock = ManualClock()
    with pytest.raises(ValueError, match=r"seconds is -1; it must be finite and not negative"):
        clock.advance(-1)
    assert clock.monotonic() == 0.0


def test_a_wait_on_a_manual_clock_for_a_future_deadline_has_no_timeout() -> None:
    """Only a deadline that has passed needs no wait."""
    clock = ManualClock()
    clock.advance(10)
    assert clock.timeout(None) is None
    assert clock.timeout(10.001) is None
    assert clock.timeout(10.0) == 0.0


def test_wakers_of_a_manual_clock_are_called_with_the_new_time_before_advance_returns() -> None:
    """A waker's work is done when `advance` has returned."""
    clock = ManualClock()
    seen: list[tuple[float, bool]] = []
    caller = threading.current_thread()
    clock.add_waker(lambda: seen.append((clock.monotonic(), threading.current_thread() is caller)))
    clock.advance(5)
    assert seen == [(5.0, True)]


class Sleeper:
    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1


def test_a_waker_removed_from_a_manual_clock_is_not_called() -> None:
    """A method is recognised, although each access creates another object for it."""
    clock, sleeper = ManualClock(), Sleeper()
    clock.add_waker(sleeper.wake)
    clock.remove_waker(sleeper.wake)
    clock.remove_waker(sleeper.wake)
    clock.advance(1)
    assert sleeper.woken == 0


def test_a_waker_of_a_manual_clock_may_add_and_remove_wakers() -> None:
    """The change takes effect with the next advance."""
    clock, sleeper = ManualClock(), Sleeper()

    def replace_myself() -> None:
        clock.remove_waker(replace_myself)
        clock.add_waker(sleeper.wake)

    clock.add_waker(replace_myself)
    clock.advance(1)
    assert sleeper.woken == 0
    clock.advance(1)
    clock.advance(1)
    assert sleeper.woken == 2


def test_an_advance_of_a_manual_clock_wakes_a_thread_that_waits_for_a_deadline() -> None:
    """Every part of pullstream waits so: check, wait for as long as the clock says, check."""
    clock, jumped, done = ManualClock(), threading.Event(), threading.Event()
    clock.add_waker(jumped.set)

    def wait_for_ten() -> None:
        while (left := clock.timeout(10.0)) != 0.0:
            jumped.wait(left)
            jumped.clear()
        done.set()

    with on_threads(wait_for_ten):
        clock.advance(9.5)
        assert not done.is_set()
        clock.advance(0.5)
        assert done.wait(10)
