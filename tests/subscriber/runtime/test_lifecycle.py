"""The states of a subscription: allowed changes, and concurrent ones."""

import threading
from itertools import product

import pytest

from pullstream.runtime.lifecycle import Lifecycle, StateChange, SubscriptionState
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import Unavailable
from tests.threads import run_on_threads

WAY_TO: dict[SubscriptionState, list[SubscriptionState]] = {
    SubscriptionState.CONNECTING: [],
    SubscriptionState.STREAMING: [SubscriptionState.STREAMING],
    SubscriptionState.RECONNECTING: [SubscriptionState.RECONNECTING],
    SubscriptionState.CLOSING: [SubscriptionState.CLOSING],
    SubscriptionState.CLOSED: [SubscriptionState.CLOSING, SubscriptionState.CLOSED],
}
LEGAL = {
    (SubscriptionState.CONNECTING, SubscriptionState.STREAMING),
    (SubscriptionState.CONNECTING, SubscriptionState.RECONNECTING),
    (SubscriptionState.CONNECTING, SubscriptionState.CLOSING),
    (SubscriptionState.STREAMING, SubscriptionState.RECONNECTING),
    (SubscriptionState.STREAMING, SubscriptionState.CLOSING),
    (SubscriptionState.RECONNECTING, SubscriptionState.STREAMING),
    (SubscriptionState.RECONNECTING, SubscriptionState.CLOSING),
    (SubscriptionState.CLOSING, SubscriptionState.CLOSED),
}


def watched(clock: ManualClock | None = None) -> tuple[Lifecycle, list[StateChange]]:
    """Return a new lifecycle and the list of its reported changes."""
    told: list[StateChange] = []
    return Lifecycle(clock or ManualClock(), told.append), told


@pytest.mark.parametrize(("present", "to"), list(product(SubscriptionState, SubscriptionState)))
def test_a_subscription_state_changes_only_to_the_states_that_may_follow_it(
    present: SubscriptionState, to: SubscriptionState
) -> None:
    """Any other change returns False, leaves the state, and is not reported."""
    lifecycle, told = watched()
    for step in WAY_TO[present]:
        assert lifecycle.move(step)
    assert lifecycle.state is present
    told.clear()
    legal = (present, to) in LEGAL
    assert lifecycle.move(to) is legal
    assert lifecycle.state is (to if legal else present)
    assert [(change.previous, change.state) for change in told] == [(present, to)] * legal


def test_a_state_change_of_a_subscription_has_the_time_and_cause_of_the_change() -> None:
    """The time is wall time for people, and the last change stays available."""
    clock = ManualClock(start=1_000.0)
    lifecycle, told = watched(clock)
    begun = lifecycle.last_change
    assert (begun.state, begun.since, begun.cause) == (SubscriptionState.CONNECTING, 1_000.0, None)
    clock.advance(5)
    cause = Unavailable("down")
    lifecycle.move(SubscriptionState.RECONNECTING, cause)
    clock.advance(5)
    assert not lifecycle.move(SubscriptionState.CLOSED, ValueError("not now"))
    assert told == [lifecycle.last_change]
    assert lifecycle.last_change == StateChange(
        SubscriptionState.RECONNECTING, SubscriptionState.CONNECTING, 1_005.0, cause
    )


def test_the_listener_for_subscription_state_changes_may_change_the_state_again() -> None:
    """No lock is held during a report. Reports come in the order of the changes."""
    told: list[SubscriptionState] = []

    def close(change: StateChange) -> None:
        told.append(change.state)
        lifecycle.move(SubscriptionState.CLOSING)

    lifecycle = Lifecycle(ManualClock(), close)
    lifecycle.move(SubscriptionState.STREAMING)
    assert told == [SubscriptionState.STREAMING, SubscriptionState.CLOSING]


@pytest.mark.parametrize("state", list(SubscriptionState))
def test_only_closing_and_closed_subscriptions_count_as_stopping(state: SubscriptionState) -> None:
    """After that, responses are returned to the server."""
    lifecycle, _ = watched()
    for step in WAY_TO[state]:
        lifecycle.move(step)
    assert lifecycle.is_stopping is (state in (SubscriptionState.CLOSING, SubscriptionState.CLOSED))


def test_only_one_of_many_concurrent_stop_requests_begins_the_shutdown_of_a_subscription() -> None:
    """There is one shutdown for many concurrent requests."""
    lifecycle, _ = watched()
    begin = threading.Barrier(8)
    told: list[bool] = []

    def stop() -> None:
        begin.wait()
        told.append(lifecycle.move(SubscriptionState.CLOSING))

    run_on_threads(stop, times=8)
    assert sorted(told) == [False] * 7 + [True]
