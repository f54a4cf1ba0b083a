"""The time for which dispositions are collected: long if few come, short if many do."""

from __future__ import annotations

import pytest

from pullstream.streaming.dispatcher import (
    LONGEST_LINGER,
    LONGEST_QUIET_LINGER,
    SHORTEST_LINGER,
    STEADY,
    Linger,
)


def after(linger: Linger, gathered: int, rounds: int) -> float:
    """Return the time after this many rounds with this many dispositions each."""
    for _ in range(rounds):
        linger.learn(gathered)
    return linger.seconds


def test_the_first_ack_waits_only_the_shortest_time_to_share_a_request() -> None:
    """Nothing is known yet, and a small window cannot wait."""
    assert Linger(1000).seconds == SHORTEST_LINGER


def test_in_a_steady_flow_acks_wait_up_to_the_longest_time_to_share_a_request() -> None:
    """A tenth of a second is harmless for a lease, and saves calls."""
    assert after(Linger(1000), gathered=STEADY, rounds=30) == LONGEST_LINGER


def test_a_single_ack_waits_a_shorter_time_for_other_acks_to_share_its_request() -> None:
    """The user may wait for the end of a single message, even after many messages."""
    linger = Linger(1000)
    assert after(linger, gathered=1, rounds=30) == LONGEST_QUIET_LINGER
    after(linger, gathered=STEADY, rounds=30)
    assert after(linger, gathered=1, rounds=1) == LONGEST_QUIET_LINGER


def test_acks_wait_less_if_one_request_settles_over_a_quarter_of_max_messages() -> None:
    """With more than a quarter of the window in one round, the server may be waiting."""
    linger = Linger(1000)
    after(linger, gathered=10, rounds=30)
    assert after(linger, gathered=251, rounds=1) == LONGEST_LINGER / 2
    assert after(linger, gathered=251, rounds=30) == SHORTEST_LINGER


@pytest.mark.parametrize("gathered", [125, 200, 250])
def test_the_wait_of_acks_stays_the_same_if_requests_settle_an_eighth_of_max_messages(
    gathered: int,
) -> None:
    """The range is between an eighth and a quarter of the window."""
    linger = Linger(1000)
    after(linger, gathered=10, rounds=5)
    before = linger.seconds
    assert after(linger, gathered=gathered, rounds=10) == before


def test_with_max_messages_of_one_an_ack_waits_only_the_shortest_time_to_be_sent() -> None:
    """Each message is the whole window."""
    assert after(Linger(1), gathered=1, rounds=10) == SHORTEST_LINGER
