"""Waiting fetches on the real broker (C3): their limit, order and end."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import wait
from pathlib import Path

import grpc
import pytest

from pullstream import PullTimeout, SubscriberClient
from pullstream_emulator.engine import Consumer, Engine
from pullstream_protocol.errors import (
    InvalidArgument,
    ResourceExhausted,
)
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.contract.pull_world import SUBSCRIPTION, TIMEOUT, TOPIC, PullWorld, seconds_of, texts
from tests.contract.pull_world import world as world
from tests.emulator.wire import Wire
from tests.subscriber.forwarder import Forwarder
from tests.subscriber.streaming.fakes import eventually

ROOT = Path(__file__).parents[2]

# Fetches in a loop, as a script does, until Ctrl-C.
SCRIPT = """
import sys
from pullstream import SubscriberClient
client = SubscriberClient(endpoint=sys.argv[1])
try:
    client.fetch(sys.argv[2], timeout=None)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    # Not closed: it is the fetch itself that has to withdraw.
    sys.stdin.read()
"""


# ---- the limit of waiting calls ------------------------------------------------------------------


def test_the_max_waiting_setting_of_a_subscription_limits_its_waiting_pulls_c3_5(
    world: PullWorld,
) -> None:
    """The default is 512. `num_waiting` is the present number."""
    assert world.client.subscription_state(SUBSCRIPTION).max_waiting == 512
    assert world.client.set_max_waiting(SUBSCRIPTION, 2).max_waiting == 2
    waiting = [world.start_fetch(), world.start_fetch()]
    assert world.client.subscription_state(SUBSCRIPTION).num_waiting == 2
    world.publish("a", "b")
    assert sorted(texts([f.result(TIMEOUT)[0] for f in waiting])) == ["a", "b"]
    assert world.client.subscription_state(SUBSCRIPTION).num_waiting == 0


def test_a_waiting_pull_is_not_counted_in_num_waiting_after_its_end_c3_5(
    world: PullWorld,
) -> None:
    """A fetch leaves by timeout or by cancellation.

    With a limit of two, two more may wait after that.
    """
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
def test_setting_max_waiting_of_a_subscription_out_of_range_is_refused_c3_5(
    world: PullWorld, number: int
) -> None:
    """The limit does not change."""
    with pytest.raises(InvalidArgument, match=f"max_waiting: {number} is not between 1 and 100000"):
        world.client.set_max_waiting(SUBSCRIPTION, number)
    assert world.client.subscription_state(SUBSCRIPTION).max_waiting == 512


def test_a_pull_above_the_max_waiting_limit_of_a_subscription_is_refused_at_once_c3_6(
    world: PullWorld,
) -> None:
    """The error names the limit. The waiting fetches continue to wait."""
    world.client.set_max_waiting(SUBSCRIPTION, 2)
    waiting = [world.start_fetch(), world.start_fetch()]
    with pytest.raises(ResourceExhausted, match="wait on billing; the maximum is 2"):
        world.client.fetch(SUBSCRIPTION, timeout=TIMEOUT)
    assert world.waiting == 2
    # A fetch that does not wait does not count as a waiter.
    assert world.client.fetch(SUBSCRIPTION, no_wait=True) == []
    world.publish("a", "b")
    assert not wait(waiting, TIMEOUT).not_done


def test_two_of_five_waiting_pulls_are_refused_with_a_max_waiting_limit_of_three_c3_6(
    world: PullWorld,
) -> None:
    """The three waiting pulls time out, and after that a sixth may wait."""
    world.client.set_max_waiting(SUBSCRIPTION, 3)
    calls = [world.start_fetch(timeout=3) for _ in range(3)]
    for _ in range(2):
        with pytest.raises(ResourceExhausted):
            world.client.fetch(SUBSCRIPTION, timeout=3)
    assert [type(call.exception(TIMEOUT)) for call in calls] == [PullTimeout] * 3
    world.start_fetch()


# ---- the order of waiting calls ------------------------------------------------------------------


def test_a_message_published_after_the_timeout_of_a_fetch_is_not_leased_to_the_fetch_c3_10(
    world: PullWorld,
) -> None:
    """No delivery attempt is counted for it. The next fetch is the first delivery."""
    name = counted(world)
    for _ in range(5):
        with pytest.raises(PullTimeout):
            world.client.fetch(name, timeout=0.05)
    world.publish("a")
    (message,) = world.client.fetch(name)
    assert message.delivery_attempt == 1
    assert world.client.subscription_state(name).delivered.consumer_seq == 1


def test_a_message_published_after_a_fetch_disconnected_is_not_leased_to_the_fetch_c3_10(
    world: PullWorld,
) -> None:
    """The message is not leased to the dead client, so it is available at once."""
    name = counted(world)
    with Forwarder(world.emulator.port) as forwarder:
        channel = grpc.insecure_channel(forwarder.endpoint)
        dead = world.start(SubscriberClient(channel=channel).fetch, name, timeout=None)
        wait_for(world, name, 1)
        forwarder.cut()
        wait_for(world, name, 0)
        world.publish("a")
        (message,) = world.client.fetch(name)
        assert message.delivery_attempt == 1
        channel.close()
        assert dead.exception(TIMEOUT) is not None


def counted(world: PullWorld) -> str:
    """Create a subscription whose messages have a delivery attempt."""
    policy = pubsub.DeadLetterPolicy(dead_letter_topic=TOPIC, max_delivery_attempts=5)
    return world.create(SUBSCRIPTION + "-counted", dead_letter_policy=policy)


def wait_for(world: PullWorld, name: str, count: int) -> None:
    while world.client.subscription_state(name).num_waiting != count:
        # Each check is a call, which lets the others make progress.
        pass


def test_ctrl_c_ends_a_waiting_fetch_and_its_pull_at_the_server_c3_10(world: PullWorld) -> None:
    """The program does not close its client."""
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, world.emulator.endpoint, SUBSCRIPTION],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        try:
            world.wait_until_waiting(1)
            program.send_signal(signal.SIGINT)
            assert program.stdout is not None
            assert program.stdout.readline() == "interrupted\n"
            world.wait_until_waiting(0)
            world.publish("a")
            assert texts(world.client.fetch(SUBSCRIPTION)) == ["a"]
            program.communicate()
        finally:
            program.kill()


def test_the_fetch_that_has_waited_longest_receives_the_next_message_c3_15(
    world: PullWorld,
) -> None:
    """Messages that come one by one go to the fetches in the order of their arrival."""
    waiting = [world.start_fetch() for _ in range(4)]
    for fetch, text in zip(waiting, "abcd", strict=True):
        world.publish(text)
        assert texts(fetch.result(TIMEOUT)) == [text]


def test_an_immediate_fetch_does_not_receive_a_message_before_a_waiting_fetch_c3_15(
    world: PullWorld,
) -> None:
    """The immediate fetch comes between the publish and the wake-up of the waiting one."""
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
    assert texts(waiting.result(TIMEOUT)) == ["a"]


def handle_all(
    world: PullWorld, batches: Sequence[range], *, fetchers: int, limit: int
) -> set[type[Exception]]:
    """Publish batches of numbers, and let fetchers handle each number once.

    The fetches wait long. One that ends while a message is on its way would keep the message's
    lease, which does not end on the broker's clock.

    Returns:
        The types of the errors that the fetchers got.
    """
    taken: list[str] = []
    errors: set[type[Exception]] = set()
    lock, done = threading.Lock(), threading.Event()
    total = sum(map(len, batches))

    def work() -> None:
        while not done.is_set():
            try:
                messages = world.client.fetch(SUBSCRIPTION, limit, timeout=TIMEOUT)
            except Exception as error:
                if not done.is_set():
                    errors.add(type(error))
                continue
            messages.ack()
            with lock:
                taken.extend(texts(messages))
                if len(taken) >= total:
                    done.set()

    workers = [world.start(work) for _ in range(fetchers)]
    try:
        for batch in batches:
            world.publish(*map(str, batch))
        assert done.wait(3 * TIMEOUT)
        eventually(lambda: world.emulator.backlog(SUBSCRIPTION) == 0)
    finally:
        done.set()
        # Ends the fetches that still wait.
        world.client.delete_subscription(subscription=SUBSCRIPTION)
    for worker in workers:
        worker.result(TIMEOUT)
    assert sorted(taken, key=int) == [str(number) for number in range(total)]
    return errors


def test_a_hundred_fetchers_share_messages_without_duplicates_c3_15(world: PullWorld) -> None:
    """Each fetcher takes up to five messages at a time, until 1,000 messages are handled."""
    batches = [range(start, start + 10) for start in range(0, 1000, 10)]
    assert handle_all(world, batches, fetchers=100, limit=5) <= {PullTimeout}


def test_more_fetchers_than_max_waiting_allows_share_messages_without_duplicates_c3_15(
    world: PullWorld,
) -> None:
    """Six clients fetch two each and three may wait.

    The only errors are the limit and the timeout.
    """
    world.client.set_max_waiting(SUBSCRIPTION, 3)
    batches = [range(number, number + 1) for number in range(60)]
    errors = handle_all(world, batches, fetchers=6, limit=2)
    assert errors <= {PullTimeout, ResourceExhausted}
