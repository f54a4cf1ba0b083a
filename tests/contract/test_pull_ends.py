"""Fetches without a result against the real broker (seed 003): their end and their reports."""

from __future__ import annotations

import pytest

from pullstream import PullTimeout, SubscriberClient, SubscriberClosed
from pullstream_protocol.errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable
from tests.contract.pull_world import PATIENCE, SUBSCRIPTION, PullWorld, seconds_of, texts
from tests.contract.pull_world import world as world


@pytest.mark.parametrize(
    ("name", "error"),
    [(SUBSCRIPTION + "-missing", NotFound), ("billing", InvalidArgument)],
)
def test_c3_11_what_the_server_refuses_is_an_error(
    world: PullWorld, name: str, error: type[Exception]
) -> None:
    """The error is raised. It never appears as a message."""
    with pytest.raises(error):
        world.client.fetch(name)


def test_c3_11_a_server_that_goes_away_is_an_error_at_once(world: PullWorld) -> None:
    """The error is UNAVAILABLE, and the fetch does not hang."""
    waiting = world.start_fetch()
    world.emulator.stop()
    assert isinstance(waiting.exception(PATIENCE), Unavailable)


def test_c3_11_what_was_received_before_an_error_is_given_back(world: PullWorld) -> None:
    """The fetch had one message and waited for two more. The next fetch receives it."""
    world.publish("a")
    waiting = world.start_fetch(max_messages=3, min_messages=3)
    world.emulator.inspect(lambda engine: engine.disconnect(FailedPrecondition("no more")))
    assert isinstance(waiting.exception(PATIENCE), FailedPrecondition)
    assert texts(world.client.fetch(SUBSCRIPTION, no_wait=True)) == ["a"]


def test_c3_16_a_timeout_tells_whether_the_server_was_heard(world: PullWorld) -> None:
    """An answer that there are no messages differs from no answer."""
    with pytest.raises(PullTimeout, match=r"no message arrived from .* within 0\.2 s") as raised:
        world.client.fetch(SUBSCRIPTION, timeout=0.2)
    assert raised.value.answered
    with (
        world.emulator.faults.drop("Pull"),
        pytest.raises(PullTimeout, match=r"the server did not answer .* within 0\.2 s") as raised,
    ):
        world.client.fetch(SUBSCRIPTION, timeout=0.2)
    assert not raised.value.answered
    with (
        world.emulator.faults.drop("Pull"),
        pytest.raises(PullTimeout, match="the server did not answer"),
    ):
        world.client.fetch(SUBSCRIPTION, timeout=0.2, no_wait=True)


def test_c3_17_a_closed_client_fetches_nothing_and_messages_stay(world: PullWorld) -> None:
    """Other clients receive them."""
    client = SubscriberClient(endpoint=world.emulator.endpoint)
    waiting = world.start(client.fetch, SUBSCRIPTION, timeout=None)
    world.wait_until_waiting(1)
    client.close()
    assert isinstance(waiting.exception(PATIENCE), SubscriberClosed)
    # The broker does not know yet that the call is gone. A message published before it knows goes
    # to this call, and is redelivered when its lease ends.
    world.wait_until_waiting(0)
    world.publish("a")
    with pytest.raises(SubscriberClosed, match="this client is closed"):
        client.fetch(SUBSCRIPTION)
    assert texts(world.client.fetch(SUBSCRIPTION)) == ["a"]


def test_c3_17_closing_the_client_gives_back_what_waits_for_more(world: PullWorld) -> None:
    """The fetch has one message and waits for two.

    Others receive the message before its lease would end.
    """
    client = SubscriberClient(endpoint=world.emulator.endpoint)
    world.publish("a")
    waiting = world.start(client.fetch, SUBSCRIPTION, 3, None, 3)
    world.wait_until_waiting(1)
    client.close()
    assert isinstance(waiting.exception(PATIENCE), SubscriberClosed)
    assert texts(world.client.fetch(SUBSCRIPTION, no_wait=True)) == ["a"]


def test_c3_17_a_server_that_says_nothing_does_not_hold_up_closing(
    world: PullWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client cannot ask these fetches for their messages. They end with the connection."""
    monkeypatch.setattr("pullstream.fetch.client.GIVE_BACK_TIME", 0.2)
    client = SubscriberClient(endpoint=world.emulator.endpoint)
    with world.emulator.faults.drop("Pull") as fault:
        waiting = [world.start(client.fetch, SUBSCRIPTION, 3, None, 3) for _ in range(10)]
        fault.wait_for_hits(10)
        # The waits for the fetches do not add up.
        assert 0.1 < seconds_of(client.close) < 1.5
    assert all(isinstance(each.exception(PATIENCE), SubscriberClosed) for each in waiting)


def test_c3_17_what_closing_gives_back_is_not_taken_by_the_same_client(world: PullWorld) -> None:
    """One thread works on a message, and another waits for the next one."""
    client = SubscriberClient(endpoint=world.emulator.endpoint)
    world.publish("a")
    with client.fetch(SUBSCRIPTION):
        waiting = world.start(client.fetch, SUBSCRIPTION, timeout=None)
        world.wait_until_waiting(1)
        client.close()
    assert isinstance(waiting.exception(PATIENCE), SubscriberClosed)
    assert texts(world.client.fetch(SUBSCRIPTION, no_wait=True)) == ["a"]


def test_c3_17_deleting_the_subscription_ends_waiting_fetches(world: PullWorld) -> None:
    """They end at once, with NOT_FOUND."""
    waiting = [world.start_fetch() for _ in range(3)]
    world.client.delete_subscription(subscription=SUBSCRIPTION)
    for fetch in waiting:
        assert isinstance(fetch.exception(PATIENCE), NotFound)
