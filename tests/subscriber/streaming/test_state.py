"""The phases of a subscription: which may follow which, and who was first."""

import threading
from itertools import product

import pytest

from subscriber.streaming.state import Lifecycle, SubscriptionState

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


@pytest.mark.parametrize(("present", "to"), list(product(SubscriptionState, SubscriptionState)))
def test_only_legal_moves_are_made(present: SubscriptionState, to: SubscriptionState) -> None:
    """Any other leaves the state as it is, and says so."""
    lifecycle = Lifecycle()
    for step in WAY_TO[present]:
        assert lifecycle.move(step)
    assert lifecycle.state is present
    legal = (present, to) in LEGAL
    assert lifecycle.move(to) is legal
    assert lifecycle.state is (to if legal else present)


@pytest.mark.parametrize("state", list(SubscriptionState))
def test_closing_has_no_way_back(state: SubscriptionState) -> None:
    """From then on responses are given back, whatever the stream does."""
    lifecycle = Lifecycle()
    for step in WAY_TO[state]:
        lifecycle.move(step)
    assert lifecycle.is_stopping is (state in (SubscriptionState.CLOSING, SubscriptionState.CLOSED))


def test_of_many_that_stop_it_one_is_told_that_it_did() -> None:
    """So there is one shutdown, however many ask for it."""
    lifecycle = Lifecycle()
    begin = threading.Barrier(8)
    told: list[bool] = []

    def stop() -> None:
        begin.wait()
        told.append(lifecycle.move(SubscriptionState.CLOSING))

    threads = [threading.Thread(target=stop) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told) == [False] * 7 + [True]
