"""The supervisor's rules: restarts, pauses, draining, killing, giving up, and the exit code."""

from __future__ import annotations

import signal

import pytest

from pullstream.runtime.retry_clock import Backoff
from pullstream.worker.supervisor_rules import STEADY_SECONDS, Action, Order, Phase, SupervisorRules

TIMEOUT = 30.0


class Doubling(Backoff):
    """A backoff of 1, 2, 4 seconds and so on, without randomness."""

    def __init__(self) -> None:
        super().__init__(1.0, 1000.0)
        self._next = 1.0

    def reset(self) -> None:
        self._next = 1.0

    def next_pause(self) -> float:
        pause, self._next = self._next, self._next * 2
        return pause


def supervision(processes: int = 2, *, running: bool = True) -> SupervisorRules:
    """Return rules that began at 0 s, with all processes running."""
    rules = SupervisorRules(processes, TIMEOUT, new_backoff=Doubling)
    rules.begin(0.0)
    if running:
        for number in range(processes):
            rules.loaded(number)
    return rules


def all_of(verb: Action, processes: int = 2) -> list[Order]:
    return [(verb, number) for number in range(processes)]


# ---- restarts ------------------------------------------------------------------------------------


def test_the_worker_supervisor_starts_the_requested_number_of_processes() -> None:
    """A process runs when it has loaded the callback."""
    rules = SupervisorRules(2, TIMEOUT)
    assert rules.begin(0.0) == all_of(Action.START)
    assert rules.phase(0) is Phase.STARTING
    rules.loaded(0)
    assert rules.phase(0) is Phase.RUNNING
    assert not rules.is_over


@pytest.mark.parametrize("code", [0, 3, -signal.SIGKILL])
def test_the_worker_supervisor_restarts_a_crashed_process_after_a_pause(code: int) -> None:
    """The exit code does not matter, and the other processes continue."""
    rules = supervision()
    assert rules.ended(1, code, 10.0) == []
    assert (rules.phase(1), rules.due(1), rules.next_due) == (Phase.PAUSING, 11.0, 11.0)
    assert rules.advance(10.9) == []
    assert rules.advance(11.0) == [(Action.START, 1)]
    assert (rules.phase(1), rules.restarts(1), rules.next_due) == (Phase.STARTING, 1, None)
    assert (rules.phase(0), rules.restarts(0)) == (Phase.RUNNING, 0)


def test_the_pauses_before_restarts_grow_while_a_worker_process_keeps_crashing() -> None:
    """Each process has its own pauses."""
    rules, now, pauses = supervision(), 0.0, []
    for _ in range(3):
        rules.ended(0, 1, now)
        pause = (rules.next_due or 0.0) - now
        pauses.append(pause)
        now += pause
        rules.advance(now)
    assert pauses == [1.0, 2.0, 4.0]
    rules.ended(1, 1, now)
    assert rules.due(1) == now + 1.0


def test_a_long_run_before_a_crash_resets_the_restart_pause_of_a_worker_process() -> None:
    """After STEADY_SECONDS the pause is the first one again, and a moment earlier it is not."""
    rules = supervision(1)
    rules.ended(0, 1, 0.0)
    rules.advance(1.0)
    rules.ended(0, 1, 1.0 + STEADY_SECONDS - 0.1)
    now = rules.next_due
    assert now == 1.0 + STEADY_SECONDS - 0.1 + 2.0
    rules.advance(now)
    rules.ended(0, 1, now + STEADY_SECONDS)
    assert rules.next_due == now + STEADY_SECONDS + 1.0


# ---- giving up -----------------------------------------------------------------------------------


def test_a_worker_callback_that_cannot_be_loaded_ends_all_processes_with_exit_code_2() -> None:
    """The first reported reason counts."""
    rules = supervision(running=False)
    assert rules.unusable(1, "no such thing", 0.5) == all_of(Action.DRAIN)
    assert rules.unusable(0, "another", 0.6) == []
    rules.ended(0, 2, 1.0)
    assert not rules.is_over
    rules.ended(1, 2, 1.0)
    assert (rules.is_over, rules.exit_code, rules.reason) == (True, 2, "no such thing")


def test_a_worker_process_that_cannot_load_a_changed_callback_is_restarted_after_a_pause() -> None:
    """The callback may load after a pause or another edit."""
    rules = supervision()
    rules.ended(1, 1, 0.0)
    rules.advance(1.0)
    assert rules.unusable(1, "the database is away", 1.5) == []
    rules.ended(1, 2, 1.5)
    assert (rules.phase(1), rules.due(1), rules.reason) == (Phase.PAUSING, 3.5, None)


def test_a_permanent_subscription_error_ends_all_worker_processes_with_exit_code_1() -> None:
    """The subscription would fail in every other process as well."""
    rules = supervision()
    assert rules.failed(0, "NOT_FOUND", 1.0) == all_of(Action.DRAIN)
    rules.ended(0, 1, 1.1)
    rules.ended(1, 0, 1.2)
    assert (rules.is_over, rules.exit_code, rules.reason) == (True, 1, "NOT_FOUND")


def test_a_subscription_error_after_a_stop_signal_does_not_change_a_workers_exit_code() -> None:
    """Someone may have deleted the subscription by then."""
    rules = supervision(1)
    rules.stop(signal.SIGTERM, 0.0)
    rules.failed(0, "NOT_FOUND", 1.0)
    rules.ended(0, 0, 1.1)
    assert (rules.exit_code, rules.reason) == (0, None)


# ---- stopping ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_after_a_signal_all_worker_processes_finish_their_messages_and_end(
    number: int, code: int
) -> None:
    """The supervisor is done when all processes have ended."""
    rules = supervision()
    assert rules.stop(number, 5.0) == all_of(Action.DRAIN)
    assert rules.phase(0) is Phase.DRAINING
    for process in (0, 1):
        assert not rules.is_over
        assert rules.ended(process, 0, 6.0) == []
    assert (rules.is_over, rules.exit_code, rules.cut_short) == (True, code, 0)
    assert rules.next_due is None


def test_a_stopping_worker_drains_starting_processes_and_restarts_no_crashed_process() -> None:
    """A pausing process needs no wait."""
    rules = supervision(running=False)
    rules.ended(1, 1, 0.0)
    assert rules.stop(signal.SIGTERM, 0.1) == [(Action.DRAIN, 0)]
    assert rules.phase(1) is Phase.ENDED
    assert rules.advance(TIMEOUT) == []


def test_worker_processes_that_do_not_end_within_the_drain_timeout_are_killed() -> None:
    """A process that has not ended by then is killed once, and the exit code is 1."""
    rules = supervision()
    rules.stop(signal.SIGTERM, 5.0)
    rules.ended(0, 0, 6.0)
    assert rules.next_due == 5.0 + TIMEOUT
    assert rules.advance(5.0 + TIMEOUT) == [(Action.KILL, 1)]
    assert rules.next_due is None
    rules.ended(1, -signal.SIGKILL, 5.1 + TIMEOUT)
    assert (rules.is_over, rules.exit_code, rules.cut_short) == (True, 1, 1)


def test_a_worker_whose_process_ends_with_an_exit_code_other_than_0_exits_with_1() -> None:
    """A process reports this by an exit code other than 0."""
    rules = supervision(1)
    rules.stop(signal.SIGTERM, 0.0)
    rules.ended(0, 1, 29.0)
    assert (rules.exit_code, rules.cut_short) == (1, 1)


def test_a_second_signal_kills_all_worker_processes_at_once() -> None:
    """The exit code is the one of the signal."""
    rules = supervision()
    rules.stop(signal.SIGTERM, 0.0)
    rules.ended(0, 0, 0.5)
    assert rules.stop(signal.SIGINT, 1.0) == [(Action.KILL, 1)]
    rules.ended(1, -signal.SIGKILL, 1.1)
    assert (rules.is_over, rules.exit_code) == (True, 130)


def test_the_first_signal_after_an_error_lets_draining_worker_processes_finish() -> None:
    """The first signal starts no kill, so draining processes may finish. The exit code stays."""
    rules = supervision()
    rules.failed(0, "NOT_FOUND", 0.0)
    assert rules.stop(signal.SIGINT, 1.0) == []
    rules.ended(0, 1, 2.0)
    rules.ended(1, 0, 2.0)
    assert rules.exit_code == 1


# ---- reloading -----------------------------------------------------------------------------------


def test_a_reload_drains_and_restarts_each_worker_process_without_a_pause() -> None:
    """The statistics do not count it as a restart."""
    rules = supervision()
    assert rules.reload(1.0) == all_of(Action.DRAIN)
    assert rules.ended(1, 0, 2.0) == [(Action.START, 1)]
    assert rules.phase(0) is Phase.DRAINING
    assert rules.ended(0, 0, 3.0) == [(Action.START, 0)]
    assert (rules.restarts(0), rules.restarts(1)) == (0, 0)


def test_a_reload_restarts_a_crashed_worker_process_without_the_rest_of_its_pause() -> None:
    """The edit may have repaired the crash."""
    rules = supervision(1)
    rules.ended(0, 1, 0.0)
    assert rules.reload(0.1) == [(Action.START, 0)]
    rules.ended(0, 1, 0.2)
    assert rules.due(0) == pytest.approx(1.2)


def test_a_worker_process_that_exceeds_the_drain_time_of_a_reload_is_killed_and_restarted() -> None:
    """Otherwise the old code would run for ever."""
    rules = supervision(1)
    rules.reload(0.0)
    assert rules.advance(TIMEOUT) == [(Action.KILL, 0)]
    assert rules.ended(0, -signal.SIGKILL, TIMEOUT) == [(Action.START, 0)]


def test_a_stopping_worker_supervisor_neither_reloads_nor_starts_a_process() -> None:
    """No process is started either."""
    rules = supervision(1)
    rules.stop(signal.SIGTERM, 0.0)
    assert rules.reload(0.1) == []
    assert rules.ended(0, 0, 0.2) == []
    assert rules.is_over
