"""Requests, waiting times and results of fetches against the real broker (C3.1 to C3.14)."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from functools import partial
from typing import Any

import grpc
import pytest

from pullstream import PullTimeout, SubscriberClient
from pullstream_protocol.clock import SYSTEM_CLOCK
from pullstream_protocol.errors import Cancelled, DeadlineExceeded
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.contract.pull_world import (
    SUBSCRIPTION,
    TIMEOUT,
    PullWorld,
    Recorder,
    seconds_of,
    texts,
)
from tests.contract.pull_world import world as world


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def client(world: PullWorld, recorder: Recorder) -> SubscriberClient:
    """Return a client whose calls are recorded."""
    return world.another_client(recorder)


def pulls(recorder: Recorder) -> list[tuple[bool, int]]:
    """Return whether each sent Pull was immediate, and the number of messages it asked for."""
    return [
        (request.return_immediately, request.max_messages)
        for request, _ in recorder.sent
        if isinstance(request, pubsub.PullRequest)
    ]


# ---- the request ---------------------------------------------------------------------------------


def test_a_fetch_waits_for_one_message_by_default_c3_1(world: PullWorld) -> None:
    """Of two messages it receives the first."""
    waiting = world.start(world.client.fetch, SUBSCRIPTION)
    world.wait_until_waiting(1)
    world.publish("a", "b")
    assert texts(waiting.result(TIMEOUT)) == ["a"]


def test_a_fetch_returns_more_messages_than_one_response_holds_c3_1(world: PullWorld) -> None:
    """The list is not cut at 1,000 messages, the broker's limit for one response."""
    for _ in range(3):
        world.publish(*["x"] * 800)
    fetched = world.client.fetch(SUBSCRIPTION, 5000)
    assert (len(fetched), fetched.reason) == (2400, "drained")


def test_large_messages_fetched_in_several_responses_are_returned_in_one_list_c3_1(
    world: PullWorld,
) -> None:
    """The size of a response is limited for the client's sake. The number of messages is not."""
    for _ in range(3):
        world.publish("x" * 1_900_000)
    assert len(world.client.fetch(SUBSCRIPTION, 10**12)) == 3


def test_the_no_wait_argument_overrides_the_timeout_of_a_fetch_c3_2(world: PullWorld) -> None:
    """The answer comes at once, also with a long timeout."""
    long = 3 * TIMEOUT
    fetch = partial(world.client.fetch, SUBSCRIPTION, timeout=long, no_wait=True)
    assert seconds_of(fetch) < TIMEOUT
    assert world.client.fetch(SUBSCRIPTION, timeout=None, no_wait=True, min_messages=1) == []
    request = pubsub.PullRequest(subscription=SUBSCRIPTION, max_messages=1, return_immediately=True)
    assert seconds_of(lambda: world.client.pull(request=request, timeout=long)) < TIMEOUT


def test_a_fetch_with_no_wait_returns_available_messages_or_an_empty_list_c3_3(
    world: PullWorld,
) -> None:
    """Fewer messages than requested are returned at once, too."""
    nothing = world.client.fetch(SUBSCRIPTION, 5, no_wait=True)
    assert (texts(nothing), nothing.reason) == ([], "drained")
    world.publish("a", "b")
    some = world.client.fetch(SUBSCRIPTION, 5, no_wait=True, min_messages=3)
    assert (texts(some), some.reason) == (["a", "b"], "drained")


def test_a_pull_that_waits_for_messages_ends_when_messages_arrive_c3_4(world: PullWorld) -> None:
    """Messages that are published later end the wait."""
    waiting = world.start_fetch()
    world.publish("a")
    assert waiting.result(TIMEOUT).reason == "filled"


def test_a_pull_that_waits_for_messages_ends_before_its_deadline_c3_4(world: PullWorld) -> None:
    """The pull ends after its time less the margin. Then no call waits on the broker."""
    began = SYSTEM_CLOCK.monotonic()
    with pytest.raises(PullTimeout):
        world.client.fetch(SUBSCRIPTION, timeout=1)
    assert SYSTEM_CLOCK.monotonic() - began > 0.8
    world.wait_until_waiting(0)


def test_a_pull_that_waits_for_messages_ends_when_its_caller_disconnects_c3_4(
    world: PullWorld,
) -> None:
    """The end of the connection is sufficient."""
    channel = grpc.insecure_channel(world.emulator.endpoint)
    waiting = world.start(SubscriberClient(channel=channel).fetch, SUBSCRIPTION, timeout=None)
    world.wait_until_waiting(1)
    channel.close()
    world.wait_until_waiting(0)
    assert isinstance(waiting.exception(TIMEOUT), Cancelled)


def test_the_first_request_of_a_fetch_returns_the_available_messages_without_waiting_c3_8(
    world: PullWorld, client: SubscriberClient, recorder: Recorder
) -> None:
    """If the available messages are enough, there is no second request."""
    world.publish("a", "b")
    assert texts(client.fetch(SUBSCRIPTION, 5)) == ["a", "b"]
    assert pulls(recorder) == [(True, 5)]


def test_the_second_request_of_a_fetch_waits_for_messages_for_the_remaining_time_c3_8(
    world: PullWorld, client: SubscriberClient, recorder: Recorder
) -> None:
    """The deadline is the remaining time.

    The broker answers earlier, so the caller sees no error.
    """
    with pytest.raises(PullTimeout) as raised:
        client.fetch(SUBSCRIPTION, 5, timeout=3)
    assert raised.value.answered
    assert pulls(recorder) == [(True, 5), (False, 5)]
    (_, first), (_, second) = recorder.sent
    assert second <= first <= 3


def test_a_fetch_returns_at_least_one_and_at_most_max_messages_c3_9(
    world: PullWorld,
) -> None:
    """Messages come in the order of publishing. `reason` says why there are not more messages."""
    world.publish(*"abcdefg")
    first = world.client.fetch(SUBSCRIPTION, 5)
    assert (texts(first), first.reason) == (list("abcde"), "filled")
    second = world.client.fetch(SUBSCRIPTION, 5)
    assert (texts(second), second.reason) == (list("fg"), "drained")
    with pytest.raises(PullTimeout):
        world.client.fetch(SUBSCRIPTION, 5, timeout=0.1)


def test_a_fetch_returns_an_available_message_and_waits_for_no_more_c3_9(
    world: PullWorld,
) -> None:
    """Only `min_messages` makes a fetch wait for more."""
    world.publish("a")
    fetch = partial(world.client.fetch, SUBSCRIPTION, 3, timeout=3 * TIMEOUT)
    assert seconds_of(fetch) < TIMEOUT


def test_fetching_one_message_takes_one_or_two_requests_c3_12(
    world: PullWorld, client: SubscriberClient, recorder: Recorder
) -> None:
    """A fetch costs one request if the message is there, and two if it arrives later."""
    world.publish("a")
    client.fetch(SUBSCRIPTION)
    assert pulls(recorder) == [(True, 1)]
    waiting = world.start(client.fetch, SUBSCRIPTION)
    world.wait_until_waiting(1)
    world.publish("b")
    assert texts(waiting.result(TIMEOUT)) == ["b"]
    assert pulls(recorder)[1:] == [(True, 1), (False, 1)]


def test_concurrent_fetches_receive_only_messages_of_their_own_subscription_c3_12(
    world: PullWorld,
) -> None:
    """Each subscription has its own messages."""
    even = world.create(SUBSCRIPTION + "-even", filter='attributes.kind = "even"')
    odd = world.create(SUBSCRIPTION + "-odd", filter='attributes.kind = "odd"')
    waiting: dict[str, Future[Any]] = {
        name: world.start(world.client.fetch, name, 10, TIMEOUT, 10) for name in (even, odd)
    }
    for number in range(20):
        world.publish(str(number), kind="odd" if number % 2 else "even")
    assert texts(waiting[even].result(TIMEOUT)) == [str(n) for n in range(0, 20, 2)]
    assert texts(waiting[odd].result(TIMEOUT)) == [str(n) for n in range(1, 20, 2)]


def test_a_fetched_message_has_the_published_content_and_can_be_acknowledged_c3_13(
    world: PullWorld,
) -> None:
    """The message does not show that it came by a fetch."""
    name = world.create(SUBSCRIPTION + "-in-order", enable_message_ordering=True)
    world.publish("a", key="k", tag="x")
    (message,) = world.client.fetch(name)
    assert (message.data, dict(message.attributes), message.ordering_key) == (
        b"a",
        {"tag": "x"},
        "k",
    )
    assert message.message_id == "1"
    message.ack_with_response().result(TIMEOUT)
    assert world.emulator.backlog(name) == 0


# ---- arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"max_messages": 0}, ValueError, "max_messages is 0; it must be 1 or more"),
        ({"max_messages": -1}, ValueError, "max_messages is -1"),
        ({"max_messages": 1.5}, TypeError, "max_messages is 1.5; it must be a whole number"),
        ({"min_messages": 0}, ValueError, "min_messages is 0"),
        ({"min_messages": 2}, ValueError, "it must not be above max_messages, which is 1"),
        ({"timeout": 0}, ValueError, "timeout is 0; it must be above 0 seconds"),
        ({"timeout": -1.0}, ValueError, "timeout is -1.0"),
        ({"timeout": float("nan")}, ValueError, "timeout is nan"),
        ({"timeout": 0, "no_wait": True}, ValueError, "timeout is 0"),
        ({"subscription": None}, TypeError, "subscription is None; it must be the full name"),
    ],
)
def test_an_invalid_argument_of_a_fetch_raises_and_no_request_is_sent_c3_14(
    client: SubscriberClient,
    recorder: Recorder,
    arguments: dict[str, Any],
    error: type[Exception],
    text: str,
) -> None:
    """The error names the argument and its value."""
    with pytest.raises(error, match=text.replace(".", r"\.")):
        client.fetch(**{"subscription": SUBSCRIPTION, **arguments})
    assert recorder.sent == []


def test_a_fetch_without_a_timeout_waits_for_ever_c3_14(world: PullWorld) -> None:
    """The fetch repeats its request when the broker has answered that there are no messages."""
    with world.emulator.faults.error("Pull", DeadlineExceeded("nothing"), times=3) as fault:
        waiting = world.start(world.client.fetch, SUBSCRIPTION, timeout=None)
        fault.wait_for_hits(3)
        world.wait_until_waiting(1)
        world.publish("a")
        assert texts(waiting.result(TIMEOUT)) == ["a"]


def test_the_second_request_of_a_fetch_waits_only_for_the_time_left_by_the_first_c3_14(
    world: PullWorld, client: SubscriberClient, recorder: Recorder
) -> None:
    """The time of the first request is deducted."""
    with (
        world.emulator.faults.delay("Pull", 0.3, times=1),
        pytest.raises(PullTimeout),
    ):
        client.fetch(SUBSCRIPTION, timeout=3)
    (_, first), (_, second) = recorder.sent
    assert second < first - 0.29


def test_a_fetch_sends_no_second_request_if_too_little_of_its_timeout_is_left_c3_14(
    world: PullWorld, client: SubscriberClient, recorder: Recorder
) -> None:
    """The margin is a tenth of a time below one second."""
    with (
        world.emulator.faults.delay("Pull", 0.38, times=1),
        pytest.raises(PullTimeout),
    ):
        client.fetch(SUBSCRIPTION, timeout=0.4)
    assert pulls(recorder) == [(True, 1)]


# ---- waiting for several messages ----------------------------------------------------------------


def test_a_fetch_with_min_messages_waits_for_that_many_messages(
    world: PullWorld,
) -> None:
    """Available messages count. The lingering requests ask for the rest."""
    world.publish("a")
    waiting = world.start_fetch(max_messages=4, min_messages=3)
    world.publish("b")
    world.wait_until_waiting(1)
    world.publish("c")
    fetched = waiting.result(TIMEOUT)
    assert (texts(fetched), fetched.reason) == (["a", "b", "c"], "drained")
    assert fetched.unsettled == fetched


def test_a_fetch_returns_fewer_messages_than_min_messages_at_its_timeout(world: PullWorld) -> None:
    """The result reports that there are fewer."""
    world.publish("a")
    fetched = world.client.fetch(SUBSCRIPTION, 4, timeout=3, min_messages=3)
    assert (texts(fetched), fetched.reason) == (["a"], "timed_out")


def test_a_fetch_after_a_timed_out_fetch_receives_the_next_message(world: PullWorld) -> None:
    """No request of the first fetch is left to take the message (nats.py #933)."""
    with pytest.raises(PullTimeout):
        world.client.fetch(SUBSCRIPTION, 5, timeout=1)
    publisher = threading.Timer(0.05, world.publish, ["a"])
    publisher.start()
    assert texts(world.client.fetch(SUBSCRIPTION, 5, timeout=TIMEOUT)) == ["a"]
    publisher.join()
