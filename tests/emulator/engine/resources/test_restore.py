"""Model test of restoration: a restored engine has the same content as the original."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from pullstream_emulator.broker import Broker
from pullstream_emulator.engine import Consumer
from pullstream_emulator.engine.delivery.subscription import Subscription
from pullstream_emulator.storage.storage import Storage
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.quick_disk import QUICK_DISK

TOPIC = "projects/test/topics/orders"
SUBSCRIPTIONS = {
    "plain": pubsub.Subscription(),
    "ordered": pubsub.Subscription(enable_message_ordering=True),
    "ordered-exactly-once": pubsub.Subscription(
        enable_message_ordering=True, enable_exactly_once_delivery=True
    ),
    "filtered": pubsub.Subscription(filter="attributes:blue"),
    "retaining": pubsub.Subscription(retain_acked_messages=True),
}
NAMES = st.sampled_from(sorted(SUBSCRIPTIONS))
SNAPSHOTS = st.sampled_from([f"projects/test/snapshots/{name}" for name in ("one", "two")])
KEYS = st.sampled_from(["", "a", "b"])


def path(name: str) -> str:
    return f"projects/test/subscriptions/{name}"


class RestartMachine(RuleBasedStateMachine):
    """All operations that change the deliverable messages, with restarts in between."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(dir=QUICK_DISK)
        self.clock = ManualClock()
        self.count = 0
        self.broker = self.start()
        self.create_topic()
        for name in SUBSCRIPTIONS:
            self.subscribe(name)

    def teardown(self) -> None:
        self.broker.close()
        shutil.rmtree(self.folder)

    def start(self) -> Broker:
        self.leased: dict[str, list[str]] = {name: [] for name in SUBSCRIPTIONS}
        self.consumers: list[tuple[Subscription, Consumer]] = []
        return Broker(self.clock, storage=Storage(Path(self.folder)))

    def has(self, name: str) -> bool:
        request = pubsub.ListSubscriptionsRequest(project="projects/test")
        listed = self.broker.engine.list_subscriptions(request).subscriptions
        return path(name) in [subscription.name for subscription in listed]

    def has_topic(self) -> bool:
        request = pubsub.ListTopicsRequest(project="projects/test")
        return bool(self.broker.engine.list_topics(request).topics)

    def snapshots(self) -> list[str]:
        request = pubsub.ListSnapshotsRequest(project="projects/test")
        return [snapshot.name for snapshot in self.broker.engine.list_snapshots(request).snapshots]

    # ---- resources -----------------------------------------------------------------------------

    @precondition(lambda self: not self.has_topic())
    @rule()
    def create_topic(self) -> None:
        self.broker.engine.create_topic(pubsub.Topic(name=TOPIC))

    @precondition(lambda self: self.has_topic())
    @rule()
    def delete_topic(self) -> None:
        self.broker.engine.delete_topic(TOPIC)

    @precondition(lambda self: self.has_topic())
    @rule(name=NAMES)
    def subscribe(self, name: str) -> None:
        """Create a subscription, or delete it and create it again."""
        if self.has(name):
            self.broker.engine.delete_subscription(path(name))
        self.leased[name] = []
        config = pubsub.Subscription(name=path(name), topic=TOPIC)
        config.MergeFrom(SUBSCRIPTIONS[name])
        self.broker.engine.create_subscription(config)

    @rule(name=NAMES, snapshot=SNAPSHOTS)
    def take_snapshot(self, name: str, snapshot: str) -> None:
        if self.has(name):
            if snapshot in self.snapshots():
                self.broker.engine.delete_snapshot(snapshot)
            self.broker.engine.create_snapshot(
                pubsub.CreateSnapshotRequest(name=snapshot, subscription=path(name))
            )

    # ---- messages ------------------------------------------------------------------------------

    @precondition(lambda self: self.has_topic())
    @rule(key=KEYS, count=st.integers(1, 5), blue=st.booleans())
    def publish(self, key: str, count: int, blue: bool) -> None:
        attributes = {"blue": ""} if blue else {}
        messages = []
        for _ in range(count):
            self.count += 1
            data = str(self.count).encode()
            messages.append(
                pubsub.PubsubMessage(data=data, ordering_key=key, attributes=attributes)
            )
        self.broker.engine.publish(pubsub.PublishRequest(topic=TOPIC, messages=messages))

    @rule(name=NAMES, limit=st.integers(1, 10))
    def pull(self, name: str, limit: int) -> None:
        if self.has(name):
            engine = self.broker.engine
            consumer = Consumer(ack_deadline=60, wake=lambda: None)
            subscription = engine.join(path(name), consumer)
            taken = engine.take(subscription, consumer, limit)
            self.leased[name] += [ack_id for ack_id, _ in taken]
            self.consumers.append((subscription, consumer))

    @rule(name=NAMES, data=st.data(), is_ack=st.booleans())
    def settle(self, name: str, data: st.DataObject, is_ack: bool) -> None:
        """Acknowledge or nack some of the pulled messages."""
        leased = self.leased[name]
        if self.has(name) and leased:
            ack_ids = data.draw(st.lists(st.sampled_from(leased), min_size=1, unique=True))
            if is_ack:
                self.broker.engine.acknowledge(path(name), ack_ids)
            else:
                self.broker.engine.modify_ack_deadline(path(name), ack_ids, 0)
            self.leased[name] = [ack_id for ack_id in leased if ack_id not in ack_ids]

    @rule(seconds=st.sampled_from([1, 61]))
    def advance(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.broker.engine.advance()

    @rule(name=NAMES, seconds=st.integers(0, 200))
    def seek_to_time(self, name: str, seconds: int) -> None:
        if self.has(name):
            request = pubsub.SeekRequest(subscription=path(name))
            request.time.FromSeconds(int(self.clock.now()) - seconds)
            self.broker.engine.seek(request)

    @precondition(lambda self: self.has_topic())
    @rule(name=NAMES)
    def finish_and_seek_back(self, name: str) -> None:
        """Acknowledge all pullable messages, and seek back to before them."""
        self.publish("", 2, blue=True)
        self.pull(name, 10)
        if self.leased[name]:
            self.broker.engine.acknowledge(path(name), self.leased[name])
            self.leased[name] = []
        self.seek_to_time(name, 200)

    @rule(name=NAMES, snapshot=SNAPSHOTS)
    def seek_to_snapshot(self, name: str, snapshot: str) -> None:
        if self.has(name) and snapshot in self.snapshots():
            request = pubsub.SeekRequest(subscription=path(name), snapshot=snapshot)
            of = self.broker.engine.get_snapshot(snapshot).topic
            # A snapshot of a topic that was created again cannot be used by its subscriptions.
            if self.topic_of(name) == of != "_deleted-topic_":
                self.broker.engine.seek(request)

    def topic_of(self, name: str) -> str:
        return self.broker.engine.get_subscription(path(name)).topic

    # ---- restarts ------------------------------------------------------------------------------

    @rule()
    def restart(self) -> None:
        self.broker.close()
        # Now all leases end in the old engine, of which storage records nothing any more.
        for subscription, consumer in self.consumers:
            self.broker.engine.leave(subscription, consumer)
        before = self.contents()
        self.broker = self.start()
        assert self.contents() == before

    def contents(self) -> tuple[dict[str, Any], dict[tuple[str, str], list[tuple[bytes, int]]]]:
        """Return settings by name, and messages with failed attempts by subscription and key."""
        engine = self.broker.engine
        held: dict[str, Any] = {name: engine.get_snapshot(name) for name in self.snapshots()}
        messages: dict[tuple[str, str], list[tuple[bytes, int]]] = {}
        for name in filter(self.has, SUBSCRIPTIONS):
            held[name] = engine.get_subscription(path(name))
            consumer = Consumer(ack_deadline=60, wake=lambda: None)
            subscription = engine.join(path(name), consumer)
            deliveries = [delivery for _, delivery in engine.take(subscription, consumer)]
            for delivery in deliveries:
                key = delivery.record.ordering_key if held[name].enable_message_ordering else ""
                found = messages.setdefault((name, key), [])
                found.append((delivery.record.encoded, delivery.attempts))
            # Messages without a key have no order. Each occurs once.
            messages.get((name, ""), []).sort()
            engine.leave(subscription, consumer)
        return held, messages


TestRestarts: Any = RestartMachine.TestCase
TestRestarts.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
