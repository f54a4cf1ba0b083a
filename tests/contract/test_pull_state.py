"""State of a subscription on the real broker (C3.7), exact at each step."""

from __future__ import annotations

from pathlib import Path

import pytest

from pullstream import SubscriberClient, TopicAdminClient
from pullstream_emulator import Emulator
from pullstream_protocol.errors import NotFound, Unimplemented
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.messages import pulls_pb2 as pulls
from tests.contract.pull_world import SUBSCRIPTION, TOPIC, PullWorld, texts
from tests.contract.pull_world import world as world
from tests.subscriber.scripted_server import ScriptedServer


def numbers(state: pulls.SubscriptionState) -> dict[str, object]:
    """Return the changing numbers: pending, leased, redelivered, and both pairs."""
    return {
        "pending": state.num_pending,
        "leased": state.num_ack_pending,
        "again": state.num_redelivered,
        "delivered": (state.delivered.consumer_seq, state.delivered.stream_seq),
        "floor": (state.ack_floor.consumer_seq, state.ack_floor.stream_seq),
    }


def now(world: PullWorld, name: str = SUBSCRIPTION) -> dict[str, object]:
    return numbers(world.client.subscription_state(name))


def test_the_subscription_state_contains_the_settings_of_the_subscription_c3_7(
    world: PullWorld,
) -> None:
    """The subscription keeps its settings from creation, with the defaults of the service."""
    state = world.client.subscription_state(SUBSCRIPTION)
    assert (state.subscription, state.max_waiting, state.num_waiting) == (SUBSCRIPTION, 512, 0)
    assert (state.ack_wait.seconds, state.max_deliver, state.max_ack_pending) == (10, -1, 0)
    policy = pubsub.DeadLetterPolicy(dead_letter_topic=TOPIC, max_delivery_attempts=7)
    name = world.create(SUBSCRIPTION + "-other", ack_deadline_seconds=33, dead_letter_policy=policy)
    state = world.client.subscription_state(name)
    assert (state.ack_wait.seconds, state.max_deliver) == (33, 7)


def test_the_subscription_state_counts_pending_leased_and_delivered_messages_exactly_c3_7(
    world: PullWorld,
) -> None:
    """Five messages are fetched and acknowledged.

    The last five are fetched only; one is redelivered.
    """
    world.publish(*"0123456789")
    assert now(world) == step(pending=10)
    first = world.client.fetch(SUBSCRIPTION, 5)
    assert now(world) == step(pending=5, leased=5, delivered=(5, 5))
    first.ack()
    assert now(world) == step(pending=5, delivered=(5, 5), floor=(5, 5))
    second = world.client.fetch(SUBSCRIPTION, 10)
    assert texts(second) == list("56789")
    assert now(world) == step(leased=5, delivered=(10, 10), floor=(5, 5))
    # Acknowledged out of order: the floor waits for the first one.
    second[1].ack_with_response().result()
    assert now(world) == step(leased=4, delivered=(10, 10), floor=(5, 5))
    second[0].nack_with_response().result()
    assert now(world) == step(pending=1, leased=3, delivered=(10, 10), floor=(7, 5))
    (again,) = world.client.fetch(SUBSCRIPTION)
    assert again.data == b"5"
    assert now(world) == step(leased=4, again=1, delivered=(11, 10), floor=(7, 5))
    again.ack_with_response().result()
    second.ack()
    assert now(world) == step(delivered=(11, 10), floor=(11, 10))


def step(
    pending: int = 0,
    leased: int = 0,
    again: int = 0,
    delivered: tuple[int, int] = (0, 0),
    floor: tuple[int, int] = (0, 0),
) -> dict[str, object]:
    return {
        "pending": pending,
        "leased": leased,
        "again": again,
        "delivered": delivered,
        "floor": floor,
    }


def test_the_subscription_state_counts_no_acked_message_as_pending_c3_7(
    world: PullWorld,
) -> None:
    """A message that is acknowledged after an unacknowledged one is neither leased nor pending."""
    name = world.create(SUBSCRIPTION + "-in-order", enable_message_ordering=True)
    world.publish("a", "b", "c", key="k")
    fetched = world.client.fetch(name, 2)
    assert now(world, name) == step(pending=1, leased=2, delivered=(2, 2))
    fetched[1].ack_with_response().result()
    assert now(world, name) == step(pending=1, leased=1, delivered=(2, 2))
    fetched[0].ack_with_response().result()
    assert now(world, name) == step(pending=1, delivered=(2, 2), floor=(2, 2))


def test_messages_excluded_by_a_filter_advance_the_ack_floor_of_the_subscription_c3_7(
    world: PullWorld,
) -> None:
    """The floor moves past it."""
    name = world.create(SUBSCRIPTION + "-good", filter='attributes.kind = "good"')
    world.publish("a", kind="bad")
    world.publish("b", kind="good")
    world.publish("c", kind="bad")
    assert now(world, name) == step(pending=1, floor=(0, 1))
    world.client.fetch(name).ack()
    assert now(world, name) == step(delivered=(1, 2), floor=(1, 3))


def test_the_subscription_state_counts_open_streams_and_waiting_pulls_separately_c3_7(
    world: PullWorld,
) -> None:
    """A pull never counts as a stream, whether it waits or has received messages."""
    waiting = world.start_fetch()
    future = world.client.subscribe(SUBSCRIPTION, lambda message: message.ack())
    while world.client.subscription_state(SUBSCRIPTION).num_streams != 1:
        # Each check is a call, which lets the stream make progress.
        pass
    assert world.client.subscription_state(SUBSCRIPTION).num_waiting == 1
    future.close()
    world.publish("a")
    waiting.result()
    state = world.client.subscription_state(SUBSCRIPTION)
    assert (state.num_streams, state.num_waiting) == (0, 0)


def test_the_state_of_a_missing_subscription_raises_not_found_c3_7(
    world: PullWorld,
) -> None:
    """The limit of a missing subscription cannot be set either."""
    with pytest.raises(NotFound):
        world.client.subscription_state(SUBSCRIPTION + "-missing")
    with pytest.raises(NotFound):
        world.client.set_max_waiting(SUBSCRIPTION + "-missing", 5)


def test_subscription_state_raises_unimplemented_if_the_server_does_not_support_the_call() -> None:
    """The server refuses the call with its own error."""

    def answer(call: object) -> None:
        raise Unimplemented("unknown service pullstream.pulls.v1.Pulls")

    with (
        ScriptedServer(answer) as server,
        SubscriberClient(endpoint=server.endpoint) as client,
        pytest.raises(Unimplemented, match="unknown service"),
    ):
        client.subscription_state(SUBSCRIPTION)


@pytest.mark.parametrize(("limit", "kept"), [(7, 7), (512, 512)])
def test_the_max_waiting_limit_of_a_subscription_is_kept_across_a_broker_restart_c3_5(
    tmp_path: Path, limit: int, kept: int
) -> None:
    """The data directory stores it.

    A subscription created again with the same name begins with 512.
    """
    with Emulator(data_dir=tmp_path) as emulator:
        with (
            TopicAdminClient(endpoint=emulator.endpoint) as topics,
            SubscriberClient(endpoint=emulator.endpoint) as client,
        ):
            topics.create_topic(name=TOPIC)
            client.create_subscription(name=SUBSCRIPTION, topic=TOPIC)
            client.set_max_waiting(SUBSCRIPTION, 7)
            client.set_max_waiting(SUBSCRIPTION, limit)
        emulator.stop()
        emulator.start()
        with SubscriberClient(endpoint=emulator.endpoint) as client:
            assert client.subscription_state(SUBSCRIPTION).max_waiting == kept
            client.delete_subscription(subscription=SUBSCRIPTION)
            client.create_subscription(name=SUBSCRIPTION, topic=TOPIC)
        emulator.stop()
        emulator.start()
        with SubscriberClient(endpoint=emulator.endpoint) as client:
            assert client.subscription_state(SUBSCRIPTION).max_waiting == 512
