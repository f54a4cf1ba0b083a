"""The end and the reports of fetches without a result (C3.11, C3.16, C3.17)."""

from __future__ import annotations

import pytest

from pullstream import PullTimeout, SubscriberClient, SubscriberClosed
from pullstream_protocol.errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable
from tests.contract.pull_world import SUBSCRIPTION, TIMEOUT, PullWorld, seconds_of, texts
from tests.contract.pull_world import world as world


@pytest.mark.parametrize(
    ("name", "error"),
    [(SUBSCRIPTION + "-missing", NotFound), ("billing", InvalidArgument)],
)
def test_a_fetch_that_the_server_refuses_raises_the_servers_error_c3_11(
    world: PullWorld, name: str, error: type[Exception]
) -> None:
    """The error is raised. It never appears as a message."""
    with pytest.raises(error):
        world.client.fetch(name)


def test_a_waiting_fetch_raises_unavailable_when_the_server_stops_c3_11(world: PullWorld) -> None:
    """The error is UNAVAILABLE, and the fetch does not hang."""
    waiting = world.start_fetch()
    world.emulator.stop()
    assert isinstance(waiting.exception(TIMEOUT), Unavailable)


def test_a_failed_fetch_nacks_the_messages_that_it_received_before_the_error_c3_11(
    world: PullWorld,
) -> None:
    """The fetch had one message and waited for two more. The next fetch receives it."""
    world.publish("a")
    waiting = world.start_fetch(max_messages=3, min_messages=3)
    world.emulator.inspect(lambda engine: engine.disconnect(FailedPrecondition("no more")))
    assert isinstance(waiting.exception(TIMEOUT), FailedPrecondition)
    assert texts(world.client.fetch(SUBSCRIPTION, no_wait=True)) == ["a"]


def test_the_timeout_error_of_a_fetch_says_whether_the_server_has_answered_c3_16(
    world: PullWorld,
) -> None:
    """An answer that there are no messages differs from no answer."""
    with pytest.raises(PullTimeout, match=r"no message arrived from .* within 3 s") as raised:
        world.client.fetch(SUBSCRIPTION, timeout=3)
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


def test_a_waiting_fetch_ended_by_closing_the_client_takes_no_later_message_c3_17(
    world: PullWorld,
) -> None:
    """Other clients receive them."""
    client = SubscriberClient(endpoint=world.emulator.endpoint)
    waiting = world.start(client.fetch, SUBSCRIPTION, timeout=None)
    world.wait_until_waiting(1)
    client.close()
    assert isinstance(waiting.exception(TIMEOUT), SubscriberClosed)
    # The broker does not know yet that the call is gone. A message published before it knows goes
    # to this call, and is redelivered when its lease ends.
    world.wait_until_waiting(0)
    world.publish("a")
    with pytest.raises(SubscriberClosed, match="this client is closed"):
        client.fetch(SUBSCRIPTION)
    assert texts(world.client.fetch(SUBSCRIPTION)) == ["a"]


def test_closing_a_client_nacks_the_messages_that_its_waiting_fetches_have_received_c3_17(
    world: PullWorld,
) -> None:
    """The fetch has one message and waits for two.

    Others receive the message before its lease would end.
    """
    client = SubscriberClient(endpoint=world.emulator.endpoint)
    world.publish("a")
    waiting = world.start(client.fetch, SUBSCRIPTION, 3, None, 3)
    world.wait_until_waiting(1)
    client.close()
    assert isinstance(waiting.exception(TIMEOUT), SubscriberClosed)
    assert texts(world.client.fetch(SUBSCRIPTION, no_wait=True)) == ["a"]


def test_an_unresponsive_server_does_not_delay_closing_a_client_with_waiting_fetches_c3_17(
    world: PullWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client cannot ask these fetches for their messages. They end with the connection."""
    monkeypatch.setattr("pullstream.fetch.client.RETURN_TIME", 1.0)
    client = SubscriberClient(endpoint=world.emulator.endpoint)
    with world.emulator.faults.drop("Pull") as fault:
        waiting = [world.start(client.fetch, SUBSCRIPTION, 3, None, 3) for _ in range(10)]
        fault.wait_for_hits(10)
        # The waits for the fetches do not add up to 10 s.
        assert 0.5 < seconds_of(client.close) < 8
    assert all(isinstance(each.exception(TIMEOUT), SubscriberClosed) for each in waiting)


def test_a_waiting_fetch_does_not_receive_messages_nacked_by_closing_its_client_c3_17(
    world: PullWorld,
) -> None:
    """One thread works on a message, and another waits for the next one."""
    client = SubscriberClient(endpoint=world.emulator.endpoint)
    world.publish("a")
    with client.fetch(SUBSCRIPTION):
        waiting = world.start(client.fetch, SUBSCRIPTION, timeout=None)
        world.wait_until_waiting(1)
        client.close()
    assert isinstance(waiting.exception(TIMEOUT), SubscriberClosed)
    assert texts(world.client.fetch(SUBSCRIPTION, no_wait=True)) == ["a"]


def test_deleting_a_subscription_ends_its_fetches_with_not_found_c3_17(
    world: PullWorld,
) -> None:
    """The fetches end at once, with NOT_FOUND."""
    waiting = [world.start_fetch() for _ in range(3)]
    world.client.delete_subscription(subscription=SUBSCRIPTION)
    for fetch in waiting:
        assert isinstance(fetch.exception(TIMEOUT), NotFound)
