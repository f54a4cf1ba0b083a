"""A big backlog: its operations take effect at once, and leave work that runs in slices.

The costs are counted in calls of functions, which do not depend on the machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from pullstream_emulator import Emulator
from pullstream_emulator.engine import Engine
from pullstream_emulator.engine.delivery import subscription
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SNAPSHOT, SUBSCRIPTION, TOPIC, Broker
from tests.emulator.keeper import Keeper
from tests.emulator.rest_client import RestClient

DAY = 24 * 3600
SMALL, LARGE = 1000, 16_000


def fill(broker: Broker, count: int, *, keyed: bool = False) -> None:
    """Publish messages, each with its own key if `keyed`."""
    for first in range(0, count, 1000):
        numbers = range(first, min(first + 1000, count))
        messages = [
            pubsub.PubsubMessage(data=b"%d" % n, ordering_key=f"{n}" if keyed else "")
            for n in numbers
        ]
        broker.engine.publish(pubsub.PublishRequest(topic=TOPIC, messages=messages))


def calls_in(act: Callable[[], object]) -> int:
    """Return how many Python functions and generators `act` enters."""
    count = 0

    def entered(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(entered)
    try:
        act()
    finally:
        sys.setprofile(before)
    return count


def work_all(broker: Broker) -> int:
    """Do all slices that are due. Return their number."""
    slices = 0
    while (due := broker.engine.next_due()) is not None and due <= broker.clock.monotonic():
        broker.engine.advance()
        slices += 1
    return slices


OPERATIONS: dict[str, Callable[[Broker], object]] = {
    "seek to the end": lambda broker: broker.seek(4_000_000_000),
    "seek to the beginning": lambda broker: broker.seek(1),
    "seek to a snapshot": Broker.seek_to_snapshot,
    "delete a snapshot": lambda broker: broker.engine.delete_snapshot(SNAPSHOT),
    "create a snapshot": lambda broker: broker.engine.create_snapshot(
        pubsub.CreateSnapshotRequest(subscription=SUBSCRIPTION)
    ),
    "detach": lambda broker: broker.engine.detach_subscription(SUBSCRIPTION),
    "delete": lambda broker: broker.engine.delete_subscription(SUBSCRIPTION),
    "reset": lambda broker: broker.engine.reset(),
    "expiry": lambda broker: broker.advance(8 * DAY),
}


@pytest.mark.parametrize("leased", [False, True], ids=["waiting", "leased"])
@pytest.mark.parametrize("keyed", [False, True], ids=["without keys", "keyed"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_the_cost_of_an_engine_call_does_not_grow_with_the_backlog_of_a_subscription(
    name: str, keyed: bool, leased: bool
) -> None:
    """Four times the backlog costs little more: the rest comes in slices, which are as short."""
    costs = []
    for count in (4 * SMALL, LARGE):
        broker = Broker(enable_message_ordering=True, expiration_policy=pubsub.ExpirationPolicy())
        fill(broker, count, keyed=keyed)
        broker.take_snapshot()
        if leased:
            while broker.join(deadline=600).take():
                pass
        call = calls_in(partial(OPERATIONS[name], broker))
        rest = []
        while (due := broker.engine.next_due()) is not None and due <= broker.clock.monotonic():
            rest.append(calls_in(broker.engine.advance))
        costs.append(max(call, *rest, 0))
    assert costs[1] < 2 * costs[0] + 500


@pytest.mark.parametrize("keyed", [False, True], ids=["without keys", "keyed"])
def test_the_cost_of_reading_the_state_of_a_subscription_does_not_grow_with_its_backlog(
    keyed: bool,
) -> None:
    """Neither leases nor keys cost more."""
    costs = []
    for count in (SMALL, LARGE):
        broker = Broker(enable_message_ordering=True)
        fill(broker, count, keyed=keyed)
        consumer = broker.join(deadline=600)
        while consumer.take():
            pass
        costs.append(calls_in(partial(broker.engine.pulls.state, SUBSCRIPTION)))
    assert costs[1] <= costs[0] + 50


@pytest.mark.parametrize("state", ["waiting", "waiting for a retry"])
def test_the_cost_of_a_retention_sweep_depends_only_on_the_number_of_dropped_messages(
    state: str,
) -> None:
    """The rest of a keyed backlog is not touched."""
    costs = []
    for count in (SMALL, LARGE):
        policy = pubsub.RetryPolicy(
            minimum_backoff=Duration(seconds=600), maximum_backoff=Duration(seconds=600)
        )
        broker = Broker(
            enable_message_ordering=True,
            retry_policy=policy,
            message_retention_duration=Duration(seconds=600),
        )
        broker.publish("old", key="old")
        broker.advance(100)
        fill(broker, count, keyed=True)
        broker.advance(499)
        if state == "waiting for a retry":
            consumer = broker.join(deadline=600)
            while got := consumer.take():
                broker.nack(*got)
        costs.append(calls_in(partial(broker.advance, 1)))
        assert broker.backlog == count
    assert costs[1] <= costs[0] + 50


def sliced(**settings: Any) -> Broker:
    """Return a broker of which no work runs at once, and a slice has two messages."""
    broker = Broker(**settings)
    work = broker.engine.registry.work
    work.size, work.at_once = 2, 0
    return broker


def test_a_seek_to_the_future_hides_the_whole_backlog_before_its_messages_are_removed() -> None:
    """Nothing of the backlog is delivered or counted, and its ack IDs are stale."""
    broker = sliced()
    broker.publish(*"abcdef")
    consumer = broker.join(max_messages=2)
    got = consumer.take()
    broker.seek(4_000_000_000)
    assert (broker.backlog, consumer.take()) == (0, [])
    assert broker.acknowledge(*got) == [each.ack_id for each in got]
    assert consumer.consumer.outstanding_messages == 0
    broker.publish("new")
    assert consumer.take_data() == ["new"]
    size = broker.engine.kept_bytes
    assert work_all(broker) > 3
    assert (broker.backlog, broker.engine.kept_bytes < size) == (1, True)


def test_a_publish_at_the_byte_limit_first_frees_the_backlog_of_a_deleted_subscription() -> None:
    """A publish is not refused because the slices are not done yet."""
    broker = sliced()
    broker.publish(*"abcdef")
    size = broker.engine.kept_bytes
    broker.engine.topics._max_bytes = size + 10
    broker.engine.delete_subscription(SUBSCRIPTION)
    assert broker.engine.kept_bytes == size
    broker.publish("x" * 10)
    assert broker.engine.kept_bytes == 0


def test_messages_of_an_ordering_key_stay_in_order_while_a_seek_is_under_way() -> None:
    """New messages come after the ones that the seek has brought back."""
    broker = sliced(enable_message_ordering=True, retain_acked_messages=True)
    broker.publish(*"abcde", key="k")
    broker.acknowledge(*broker.join().take())
    broker.seek(1)
    assert broker.backlog == 5
    broker.publish("f", key="k")
    consumer = broker.join()
    assert consumer.take_data(2) == ["a", "b"]
    broker.publish("g", key="k")
    work_all(broker)
    assert consumer.take_data() == ["c", "d", "e", "f", "g"]


def test_a_seek_to_a_time_keeps_the_delivery_attempts_of_messages_left_in_the_backlog() -> None:
    """Delivery attempts belong to the message, whichever queue has it."""
    broker = sliced()
    broker.publish(*"abc")
    consumer = broker.join()
    broker.nack(*consumer.take(1))
    broker.seek(1)
    assert sorted((got.data, got.failed_before) for got in consumer.take()) == [
        ("a", 1),
        ("b", 0),
        ("c", 0),
    ]


def test_a_second_seek_of_a_subscription_replaces_a_seek_that_is_under_way() -> None:
    """The state after it is that of the second seek."""
    broker = sliced(retain_acked_messages=True)
    broker.publish(*"abcde")
    broker.take_snapshot()
    broker.acknowledge(*broker.join().take())
    broker.seek(1)
    broker.engine.advance()
    broker.seek(4_000_000_000)
    assert broker.backlog == 0
    broker.seek_to_snapshot()
    broker.engine.delete_snapshot(SNAPSHOT)
    work_all(broker)
    assert sorted(broker.join().take_data()) == list("abcde")


@pytest.mark.parametrize("why", ["filter", "key"])
def test_a_consumer_is_woken_for_an_available_message_behind_many_blocked_messages(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The take of the consumer gives up after some messages.

    The work that goes on finds the message.
    """
    monkeypatch.setattr(subscription, "MAX_UNSTOCKED", 2)
    if why == "filter":
        retention = {"message_retention_duration": Duration(seconds=600)}
        broker = Broker(topic=retention, filter='attributes.kind = "good"')
    else:
        broker = Broker(enable_message_ordering=True)
    work = broker.engine.registry.work
    work.size, work.at_once = 2, 3
    broker.publish(*"abcdefghi", key="k")
    if why == "filter":
        broker.publish(*"jklm")
    broker.publish("last", kind="good")
    broker.seek(1)
    if why == "key":
        assert broker.join().take_data() == ["a", "b"]
    consumer = broker.join()
    assert consumer.take() == []
    work_all(broker)
    assert consumer.wakes == 1
    assert consumer.take_data() == ["last"]


def test_a_seek_applies_the_filter_to_messages_older_than_the_subscription() -> None:
    """Messages from before the subscription were never filtered."""
    broker = Broker(topic={"message_retention_duration": Duration(seconds=600)})
    broker.publish("a", kind="good")
    broker.publish("b", kind="bad")
    broker.engine.delete_subscription(SUBSCRIPTION)
    broker.engine.create_subscription(
        pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC, filter='attributes.kind = "good"')
    )
    broker.seek(1)
    assert broker.backlog == 1
    assert broker.join().take_data() == ["a"]


def test_a_broker_crash_during_a_seek_loses_no_message_of_the_subscription() -> None:
    """The observer learns the whole seek at once."""
    keeper = Keeper()
    broker = sliced_and_kept(keeper)
    broker.publish(*"abcde")
    broker.acknowledge(*broker.join().take())
    broker.seek(1)
    broker.engine.advance()
    restored = sliced_and_kept(Keeper(), restore_from=keeper)
    assert sorted(restored.join().take_data()) == list("abcde")


def sliced_and_kept(keeper: Keeper, restore_from: Keeper | None = None) -> Broker:
    """Return a broker with an observer, restored from another observer's state if given."""
    clock = ManualClock()
    engine = Engine(wall=clock.now, monotonic=clock.monotonic, observer=keeper)
    engine.registry.work.size, engine.registry.work.at_once = 2, 0
    if restore_from is None:
        return Broker(clock, engine=engine, retain_acked_messages=True)
    engine.restore(restore_from.everything())
    broker = Broker.__new__(Broker)
    broker.clock, broker.engine = clock, engine
    return broker


def test_a_retention_sweep_in_slices_drops_only_messages_past_their_retention() -> None:
    """Leased messages stay until their lease ends."""
    broker = sliced(message_retention_duration=Duration(seconds=600))
    broker.publish(*"abcdef")
    consumer = broker.join(deadline=600, max_messages=1)
    broker.advance(300)
    (leased,) = consumer.take()
    broker.publish("young")
    broker.advance(300)
    work_all(broker)
    assert broker.backlog == 2
    broker.nack(leased)
    assert broker.backlog == 1
    assert broker.join().take_data() == ["young"]


def test_a_retention_sweep_drops_messages_that_a_seek_under_way_has_not_restored_yet() -> None:
    """Messages that the seek has yet to restore become too old like others."""
    broker = sliced(message_retention_duration=Duration(seconds=600), retain_acked_messages=True)
    broker.publish(*"abcde")
    broker.acknowledge(*broker.join().take())
    broker.advance(599)
    broker.seek(1)
    broker.clock.advance(1)  # type: ignore[attr-defined]
    work_all(broker)
    assert (broker.backlog, broker.join().take()) == (0, [])
    broker.advance(1)
    work_all(broker)
    assert broker.engine.kept_bytes == 0


@pytest.mark.parametrize("thread", ["another thread", "the event loop", "HTTP"])
def test_an_advance_of_the_broker_clock_returns_only_after_expired_messages_are_dropped(
    thread: str,
) -> None:
    """A test sees the state of the new time."""
    clock = ManualClock()
    with Emulator(clock=clock, rest=True) as emulator:
        broker = emulator.inspect(lambda engine: Broker(clock, engine=engine))
        emulator.inspect(lambda engine: fill(broker, 5 * SMALL))
        if thread == "another thread":
            clock.advance(8 * DAY)
        elif thread == "HTTP":
            rest = RestClient(emulator.endpoint)
            rest.ok("POST", "/v0/admin/clock:advance", {"seconds": 8 * DAY})
        else:
            emulator.inspect(lambda engine: clock.advance(8 * DAY))
        assert emulator.backlog(SUBSCRIPTION) == 0
