"""A message that always fails takes no other one of its key to the dead-letter topic."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import product
from operator import contains
from typing import Any

import pytest

from pullstream import (
    FlowControl,
    Hooks,
    Message,
    MessageBatch,
    SubscriberClient,
    TopicAdminClient,
)
from pullstream.hooks import LeaseLoss
from pullstream.message import has_begun
from pullstream_emulator import Emulator
from pullstream_emulator.engine import Engine
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.behaviour import stage as stage_
from tests.subscriber.clocks import PacedClock
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

TOPIC = "projects/p/topics/orders"
DEAD = "projects/p/topics/dead"
SUBSCRIPTION = "projects/p/subscriptions/billing"
DEAD_SUBSCRIPTION = "projects/p/subscriptions/undertaker"
COUNT = 200
POISON = (0, 70)
GOOD = [number for number in range(COUNT) if number not in POISON]
ATTEMPTS = 5


class World:
    """A broker with an ordered subscription that has a dead-letter policy, and its subscribers."""

    def __init__(self, clock: ManualClock | None = None, **settings: Any) -> None:
        self.stack = ExitStack()
        self.broker = self.stack.enter_context(Emulator(clock=clock) if clock else Emulator())
        self.client = self.stack.enter_context(SubscriberClient(endpoint=self.broker.endpoint))
        topics = self.stack.enter_context(TopicAdminClient(endpoint=self.broker.endpoint))
        topics.create_topic(name=TOPIC)
        topics.create_topic(name=DEAD)
        self.client.create_subscription(
            request={"name": DEAD_SUBSCRIPTION, "topic": DEAD, "ack_deadline_seconds": 600}
        )
        self.client.create_subscription(
            request={
                "name": SUBSCRIPTION,
                "topic": TOPIC,
                "enable_message_ordering": True,
                "dead_letter_policy": {
                    "dead_letter_topic": DEAD,
                    "max_delivery_attempts": ATTEMPTS,
                },
                **settings,
            }
        )
        self._publish = topics.publish
        self._lock = threading.Lock()
        self._running = 0
        # The number and delivery attempt of each callback, in order.
        self.seen: list[tuple[int, int]] = []

    def publish(self, count: int = COUNT) -> None:
        messages = [
            pubsub.PubsubMessage(data=str(number).encode(), ordering_key="k")
            for number in range(count)
        ]
        self._publish(TOPIC, messages)

    def publish_other(self, number: int) -> None:
        """Publish one message of another key."""
        message = pubsub.PubsubMessage(data=str(number).encode(), ordering_key=f"o{number}")
        self._publish(TOPIC, [message])

    def number_of(self, message: Message) -> int:
        """Record that a callback sees a message, and return its number."""
        number, attempt = int(message.data), message.delivery_attempt
        assert attempt is not None
        with self._lock:
            self.seen.append((number, attempt))
        return number

    @property
    def handled(self) -> list[int]:
        """Return the good messages as often and in the order in which callbacks handled them."""
        return [number for number, _ in self.seen if number not in POISON]

    def dead(self) -> list[int]:
        response = self.client.pull(
            subscription=DEAD_SUBSCRIPTION, max_messages=1000, return_immediately=True
        )
        return sorted(int(one.message.data) for one in response.received_messages)

    def wait_until_done(self) -> None:
        eventually(lambda: self.broker.backlog(SUBSCRIPTION) == 0)

    def check(self) -> None:
        """Check that only the poison is dead; others ran once, in order, at the first attempt."""
        assert self.handled == GOOD
        assert {attempt for number, attempt in self.seen if number not in POISON} == {1}
        counts = Counter(number for number, _ in self.seen if number in POISON)
        assert counts == dict.fromkeys(POISON, ATTEMPTS)
        assert self.dead() == list(POISON)


@pytest.fixture(params=[False, True], ids=["at-least-once", "exactly-once"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(enable_exactly_once_delivery=request.param)
    with world.stack:
        yield world


def leases(engine: Engine) -> int:
    return len(engine.registry.subscription(SUBSCRIPTION).leases)


def leases_granted(engine: Engine) -> int:
    return engine.registry.subscription(stage_.SUBSCRIPTION).leases.granted


def is_longer(things: Sequence[object], count: int) -> bool:
    return len(things) > count


def nack(message: Message) -> None:
    message.nack()


def fail(message: Message) -> None:
    raise ValueError("on purpose")


def handling(world: World, instead: Callable[[Message], None]) -> Callable[[Message], None]:
    """Return a callback that acknowledges messages, but calls `instead` with poison."""

    def handle(message: Message) -> None:
        if world.number_of(message) in POISON:
            instead(message)
        else:
            message.ack()

    return handle


@pytest.mark.parametrize("instead", [nack, fail])
@pytest.mark.parametrize("release_after", ["callback", "ack"])
def test_only_the_poison_message_of_an_ordering_key_is_dead_lettered(
    world: World, instead: Callable[[Message], None], release_after: Any
) -> None:
    """The callback nacks or raises, and the next message begins after the callback or the ack."""
    world.client.subscribe(SUBSCRIPTION, handling(world, instead), release_after=release_after)
    world.publish()
    world.wait_until_done()
    world.check()


def test_only_the_poison_message_is_dead_lettered_with_a_small_flow_control_window(
    world: World,
) -> None:
    """When a message fails, later ones are still at the broker or on their way."""
    limits = FlowControl(max_messages=7)
    world.client.subscribe(SUBSCRIPTION, handling(world, nack), flow_control=limits)
    world.publish()
    world.wait_until_done()
    world.check()


def test_only_the_poison_message_is_dead_lettered_with_async_callbacks(world: World) -> None:
    """The callbacks run on an event loop."""
    handle = handling(world, fail)

    async def callback(message: Message) -> None:
        handle(message)

    world.client.subscribe(SUBSCRIPTION, callback)
    world.publish()
    world.wait_until_done()
    world.check()


@pytest.mark.parametrize("verdict", ["nack", "raise"])
def test_only_the_poison_message_is_dead_lettered_with_batch_callbacks(
    world: World, verdict: str
) -> None:
    """Messages after the poison in the same list are still handled once."""

    def handle(messages: MessageBatch) -> None:
        for message in messages:
            if world.number_of(message) not in POISON:
                message.ack()
            elif verdict == "nack":
                message.nack()
            else:
                raise ValueError("on purpose")

    world.client.subscribe_batch(SUBSCRIPTION, handle, max_messages=20, max_latency=0.01)
    world.publish()
    world.wait_until_done()
    world.check()


def test_only_the_poison_message_is_dead_lettered_with_two_subscribers(world: World) -> None:
    """The key may move from one subscriber to the other."""
    handle = handling(world, nack)
    with SubscriberClient(endpoint=world.broker.endpoint) as other:
        world.client.subscribe(SUBSCRIPTION, handle)
        other.subscribe(SUBSCRIPTION, handle)
        world.publish()
        world.wait_until_done()
    world.check()


@pytest.mark.parametrize("exactly_once", [False, True])
def test_only_the_poison_message_is_dead_lettered_under_a_retry_policy_with_backoff(
    exactly_once: bool,
) -> None:
    """The key waits for the backoff of the poison, and other keys do not wait."""
    clock = ManualClock()
    world = World(
        clock,
        enable_exactly_once_delivery=exactly_once,
        retry_policy={"minimum_backoff": {"seconds": 60}, "maximum_backoff": {"seconds": 600}},
    )
    with world.stack:
        others: list[bytes] = []
        handle = handling(world, nack)

        def callback(message: Message) -> None:
            if message.ordering_key == "k":
                handle(message)
            else:
                others.append(message.data)
                message.ack()

        # The whole window is held behind the poison.
        world.client.subscribe(SUBSCRIPTION, callback, flow_control=FlowControl(max_messages=COUNT))
        world.publish()
        for poison, attempt in product(POISON, range(1, ATTEMPTS + 1)):
            eventually(partial(contains, world.seen, (poison, attempt)))
            count = len(others)
            world.publish_other(count)
            eventually(partial(is_longer, others, count))
            # The broker has taken the nack, which has ended all leases of the key.
            eventually(lambda: world.broker.inspect(leases) == 0)
            # The last failure makes a dead letter. No backoff follows, and a jump of the clock
            # could end the leases of the next messages.
            if attempt < ATTEMPTS:
                clock.advance(60 * 2 ** (attempt - 1))
        world.wait_until_done()
        world.check()


class GivenUp(Hooks):
    """Lets callbacks continue whose lease was given up."""

    def __init__(self) -> None:
        self.happened = threading.Semaphore(0)

    def lease_lost(self, subscription: str, messages: Sequence[Message], why: LeaseLoss) -> None:
        if any(message.data == b"poison" and has_begun(message) for message in messages):
            self.happened.release()


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_hanging_callback_adds_no_delivery_attempt_to_later_messages_of_its_key(
    exactly_once: bool,
) -> None:
    """The messages behind a hanging callback have been held for as long as it has run."""
    policy = {"dead_letter_topic": f"{stage_.TOPIC}-dead", "max_delivery_attempts": ATTEMPTS}
    seen: list[tuple[bytes, int | None]] = []
    given_up = GivenUp()

    def handle(message: Message) -> None:
        seen.append((message.data, message.delivery_attempt))
        if message.data == b"poison":
            assert given_up.happened.acquire(timeout=3 * TIMEOUT)
        else:
            message.ack()

    with stage_.stage(
        PacedClock(),
        topics=[f"{stage_.TOPIC}-dead"],
        enable_message_ordering=True,
        enable_exactly_once_delivery=exactly_once,
        dead_letter_policy=policy,
    ) as stage:
        stage.publish(b"poison", b"1", b"2", b"3", key="k")
        manager = stage.manage(handle, hooks=(given_up,), max_lease_duration=30)

        def is_quiet() -> bool:
            """Return whether neither side has anything to send."""
            granted = stage.emulator.inspect(leases_granted)
            return manager.statistics().received == granted and stage_.is_idle(manager)

        while stage.backlog:
            eventually(is_quiet)
            # The broker ends a lease some time after the client gave it up.
            stage.advance(stage_.STEP, extending=False)
    poisons = [(b"poison", attempt) for attempt in range(1, ATTEMPTS + 1)]
    assert seen == [*poisons, (b"1", 1), (b"2", 1), (b"3", 1)]
