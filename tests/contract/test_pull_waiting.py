"""Seed 003 over the real broker: who waits, how many may, who is served, and how waiting ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from concurrent.futures import wait
from pathlib import Path

import grpc
import pytest

from emulator.engine import Consumer, Engine
from protocol.errors import (
    InvalidArgument,
    ResourceExhausted,
)
from protocol.messages import pubsub_pb2 as pubsub
from subscriber import PullTimeout, SubscriberClient
from tests.contract.pull_world import PATIENCE, SUBSCRIPTION, TOPIC, PullWorld, seconds_of, texts
from tests.contract.pull_world import world as world
from tests.emulator.relay import Relay
from tests.emulator.wire import Wire

ROOT = Path(__file__).parents[2]

# Fetches for ever, as a script does, until Ctrl-C.
SCRIPT = """
import sys
from subscriber import SubscriberClient
client = SubscriberClient(endpoint=sys.argv[1])
try:
    client.fetch(sys.argv[2], timeout=None)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    # Not closed: it is the fetch itself that has to withdraw.
    sys.stdin.read()
"""


# ---- how many may wait ---------------------------------------------------------------------------


def test_c3_5_so_many_may_wait_and_the_number_can_be_set(world: PullWorld) -> None:
    """512 unless it is; `num_waiting` is how many do."""
    assert world.client.subscription_state(SUBSCRIPTION).max_waiting == 512
    assert world.client.set_max_waiting(SUBSCRIPTION, 2).max_waiting == 2
    waiting = [world.start_fetch(), world.start_fetch()]
    assert world.client.subscription_state(SUBSCRIPTION).num_waiting == 2
    world.publish("a", "b")
    assert sorted(texts([f.result(PATIENCE)[0] for f in waiting])) == ["a", "b"]
    assert world.client.subscription_state(SUBSCRIPTION).num_waiting == 0


def test_c3_5_who_waits_no_more_is_not_counted(world: PullWorld) -> None:
    """Whether it was its time or its caller: after two, with a limit of two, two more may."""
    world.client.set_max_waiting(SUBSCRIPTION, 2)
    for _ in range(2):
        with pytest.raises(PullTimeout):
            world.client.fetch(SUBSCRIPTION, timeout=0.1)
    wire = Wire(world.emulator.endpoint)
    calls = [wire.start("Pull", linger()) for _ in range(2)]
    world.wait_until_waiting(2)
    for call in calls:
        call.cancel()
    world.wait_until_waiting(0)
    wire.close()
    assert seconds_of(lambda: expect_timeout(world, 0.25)) > 0.2


def linger() -> pubsub.PullRequest:
    return pubsub.PullRequest(subscription=SUBSCRIPTION, max_messages=1)


def expect_timeout(world: PullWorld, timeout: float) -> None:
    with pytest.raises(PullTimeout):
        world.client.fetch(SUBSCRIPTION, timeout=timeout)


@pytest.mark.parametrize("number", [0, -1, 100_001])
def test_c3_5_a_limit_out_of_its_range_is_refused(world: PullWorld, number: int) -> None:
    """And changes nothing."""
    with pytest.raises(InvalidArgument, match=f"max_waiting: {number} is not between 1 and 100000"):
        world.client.set_max_waiting(SUBSCRIPTION, number)
    assert world.client.subscription_state(SUBSCRIPTION).max_waiting == 512


def test_c3_6_one_more_is_refused_at_once(world: PullWorld) -> None:
    """With an error that names the limit; those that wait go on waiting."""
    world.client.set_max_waiting(SUBSCRIPTION, 2)
    waiting = [world.start_fetch(), world.start_fetch()]
    with pytest.raises(ResourceExhausted, match="wait on billing; the maximum is 2"):
        world.client.fetch(SUBSCRIPTION, timeout=PATIENCE)
    assert world.waiting == 2
    # One that need not wait is no waiter.
    assert world.client.fetch(SUBSCRIPTION, no_wait=True) == []
    world.publish("a", "b")
    assert not wait(waiting, PATIENCE).not_done


def test_c3_6_of_five_with_a_limit_of_three_two_are_refused(world: PullWorld) -> None:
    """The others time out, and a sixth may wait then."""
    world.client.set_max_waiting(SUBSCRIPTION, 3)
    calls = [world.start(world.client.fetch, SUBSCRIPTION, 1, 0.5) for _ in range(5)]
    errors = [type(call.exception(PATIENCE)) for call in calls]
    assert sorted(error.__name__ for error in errors) == [
        *["PullTimeout"] * 3,
        *["ResourceExhausted"] * 2,
    ]
    world.start_fetch()


# ---- who is served -------------------------------------------------------------------------------


def test_c3_10_who_has_timed_out_gets_nothing_any_more(world: PullWorld) -> None:
    """No attempt to deliver to it is counted: the next fetch is the first delivery."""
    name = counted(world)
    for _ in range(5):
        with pytest.raises(PullTimeout):
            world.client.fetch(name, timeout=0.05)
    world.publish("a")
    (message,) = world.client.fetch(name)
    assert message.delivery_attempt == 1
    assert world.client.subscription_state(name).delivered.consumer_seq == 1


def test_c3_10_who_is_cut_off_gets_nothing_any_more(world: PullWorld) -> None:
    """The message waits for no lease of the dead one's to end."""
    name = counted(world)
    with Relay(world.emulator.port) as relay:
        channel = grpc.insecure_channel(relay.endpoint)
        dead = world.start(SubscriberClient(channel=channel).fetch, name, timeout=None)
        wait_for(world, name, 1)
        relay.cut()
        wait_for(world, name, 0)
        world.publish("a")
        (message,) = world.client.fetch(name)
        assert message.delivery_attempt == 1
        channel.close()
        assert dead.exception(PATIENCE) is not None


def counted(world: PullWorld) -> str:
    """A subscription whose messages say how often they were delivered."""
    policy = pubsub.DeadLetterPolicy(dead_letter_topic=TOPIC, max_delivery_attempts=5)
    return world.create(SUBSCRIPTION + "-counted", dead_letter_policy=policy)


def wait_for(world: PullWorld, name: str, count: int) -> None:
    while world.client.subscription_state(name).num_waiting != count:
        # Each look is a call, which gives the others their turns.
        pass


def test_c3_10_a_ctrl_c_is_seen_at_once_and_withdraws(world: PullWorld) -> None:
    """In a program that does not close its client."""
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, world.emulator.endpoint, SUBSCRIPTION],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        world.wait_until_waiting(1)
        program.send_signal(signal.SIGINT)
        assert program.stdout is not None
        assert program.stdout.readline() == "interrupted\n"
        world.wait_until_waiting(0)
        world.publish("a")
        assert texts(world.client.fetch(SUBSCRIPTION)) == ["a"]
        program.communicate()


def test_c3_15_who_waits_longest_is_served_first(world: PullWorld) -> None:
    """Messages that come one by one go to the fetches in the order in which these came."""
    waiting = [world.start_fetch() for _ in range(4)]
    for fetch, text in zip(waiting, "abcd", strict=True):
        world.publish(text)
        assert texts(fetch.result(PATIENCE)) == [text]


def test_c3_15_who_does_not_wait_takes_nothing_from_who_does(world: PullWorld) -> None:
    """Even if it comes in the moment between the publish and the other's waking."""
    waiting = world.start_fetch()

    def publish_and_pull(engine: Engine) -> int:
        message = pubsub.PubsubMessage(data=b"a")
        engine.publish(pubsub.PublishRequest(topic=TOPIC, messages=[message]))
        newcomer = Consumer(ack_deadline=10, wake=lambda: None, is_pull=True)
        subscription = engine.join(SUBSCRIPTION, newcomer)
        taken = engine.take(subscription, newcomer)
        engine.leave(subscription, newcomer)
        return len(taken)

    assert world.emulator.inspect(publish_and_pull) == 0
    assert texts(waiting.result(PATIENCE)) == ["a"]


def test_c3_15_a_hundred_share_without_duplicates_or_stalls(world: PullWorld) -> None:
    """Each takes up to five at a time and acknowledges them, until a thousand are gone."""
    taken: list[str] = []
    lock, done = threading.Lock(), threading.Event()

    def work() -> None:
        while not done.is_set():
            try:
                messages = world.client.fetch(SUBSCRIPTION, 5, timeout=0.5)
            except PullTimeout:
                continue
            messages.ack()
            with lock:
                taken.extend(texts(messages))
                if len(taken) >= 1000:
                    done.set()

    workers = [world.start(work) for _ in range(100)]
    for number in range(100):
        world.publish(*(str(number * 10 + i) for i in range(10)))
    assert done.wait(PATIENCE)
    for worker in workers:
        worker.result(PATIENCE)
    assert sorted(taken, key=int) == [str(number) for number in range(1000)]
    assert world.emulator.backlog(SUBSCRIPTION) == 0


def test_c3_15_more_than_may_wait_share_without_duplicates(world: PullWorld) -> None:
    """Six fetch two each, three may wait: the only errors are that limit and the time."""
    world.client.set_max_waiting(SUBSCRIPTION, 3)
    taken: list[str] = []
    errors: set[type[Exception]] = set()
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            try:
                messages = world.client.fetch(SUBSCRIPTION, 2, timeout=0.2)
            except Exception as error:
                errors.add(type(error))
                continue
            messages.ack()
            taken.extend(texts(messages))
            if len(taken) >= 60:
                done.set()

    workers = [world.start(work) for _ in range(6)]
    for number in range(60):
        world.publish(str(number))
    assert done.wait(PATIENCE)
    for worker in workers:
        worker.result(PATIENCE)
    assert errors <= {PullTimeout, ResourceExhausted}
    assert sorted(taken, key=int) == [str(number) for number in range(60)]
