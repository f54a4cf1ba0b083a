"""The phases of a subscription: which may follow which, and who was first."""

import threading
from itertools import product

import pytest

from subscriber.streaming.state import Lifecycle, State

WAY_TO: dict[State, list[State]] = {
    State.CONNECTING: [],
    State.STREAMING: [State.STREAMING],
    State.RECONNECTING: [State.RECONNECTING],
    State.STOPPING: [State.STOPPING],
    State.STOPPED: [State.STOPPING, State.STOPPED],
}
LEGAL = {
    (State.CONNECTING, State.STREAMING),
    (State.CONNECTING, State.RECONNECTING),
    (State.CONNECTING, State.STOPPING),
    (State.STREAMING, State.RECONNECTING),
    (State.STREAMING, State.STOPPING),
    (State.RECONNECTING, State.STREAMING),
    (State.RECONNECTING, State.STOPPING),
    (State.STOPPING, State.STOPPED),
}


@pytest.mark.parametrize(("present", "to"), list(product(State, State)))
def test_only_legal_moves_are_made(present: State, to: State) -> None:
    """Any other leaves the state as it is, and says so."""
    lifecycle = Lifecycle()
    for step in WAY_TO[present]:
        assert lifecycle.move(step)
    assert lifecycle.state is present
    legal = (present, to) in LEGAL
    assert lifecycle.move(to) is legal
    assert lifecycle.state is (to if legal else present)


@pytest.mark.parametrize("state", list(State))
def test_stopping_has_no_way_back(state: State) -> None:
    """From then on responses are given back, whatever the stream does."""
    lifecycle = Lifecycle()
    for step in WAY_TO[state]:
        lifecycle.move(step)
    assert lifecycle.is_stopping is (state in (State.STOPPING, State.STOPPED))


def test_of_many_that_stop_it_one_is_told_that_it_did() -> None:
    """So there is one shutdown, however many ask for it."""
    lifecycle = Lifecycle()
    begin = threading.Barrier(8)
    told: list[bool] = []

    def stop() -> None:
        begin.wait()
        told.append(lifecycle.move(State.STOPPING))

    threads = [threading.Thread(target=stop) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told) == [False] * 7 + [True]
