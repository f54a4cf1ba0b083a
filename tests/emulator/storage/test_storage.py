"""A broker with a data directory keeps its content over restarts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.engine.settings.durability import LABEL
from pullstream_protocol import errors
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import iam_pb2 as iam
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.messages import schema_pb2 as schema
from tests.emulator.broker import PROJECT, SNAPSHOT, SUBSCRIPTION, TOPIC
from tests.emulator.crash import copy_running
from tests.emulator.wire import Stream, Wire, ack_ids_of, data_of

OTHER_TOPIC = f"{PROJECT}/topics/failures"
OTHER_SUBSCRIPTION = f"{PROJECT}/subscriptions/failures"


class Restarts:
    """A sequence of brokers on one data directory, and a client of the present one."""

    def __init__(self, directory: Path, clock: ManualClock, stack: ExitStack) -> None:
        self.directory = directory
        self._clock = clock
        self._stack = stack
        self._stop: Callable[[], None] | None = None
        self.start()

    def start(self, **settings: Any) -> Wire:
        """Stop the running broker and start another."""
        if self._stop is not None:
            self._stop()
        with ExitStack() as stack:
            self.emulator = stack.enter_context(
                Emulator(clock=self._clock, data_dir=self.directory, **settings)
            )
            self.wire = Wire(self.emulator.endpoint)
            stack.callback(self.wire.close)
            self._stop = stack.pop_all().close
            self._stack.callback(self._stop)
        return self.wire

    def crash(self) -> Wire:
        """Start a broker on a copy of the present files, and stop the running one."""
        crashed = self.directory.with_name(f"{self.directory.name}-crashed")
        copy_running(self.directory, crashed)
        self.directory = crashed
        return self.start()


@pytest.fixture
def restarts(tmp_path: Path, clock: ManualClock) -> Iterator[Restarts]:
    with ExitStack() as stack:
        yield Restarts(tmp_path / "data", clock, stack)


@pytest.fixture
def wire(restarts: Restarts) -> Wire:
    return restarts.wire


def publish_to(wire: Wire, topic: str, *data: str) -> list[int]:
    messages = [pubsub.PubsubMessage(data=each.encode()) for each in data]
    answer = wire.call("Publish", pubsub.PublishRequest(topic=topic, messages=messages))
    return [int(message_id) for message_id in answer.message_ids]


# ---- resources ---------------------------------------------------------------------------------


def test_topics_and_subscriptions_are_kept_across_a_restart(restarts: Restarts, wire: Wire) -> None:
    """The resources were created, changed and deleted. Each has all its settings."""
    wire.create(ack_deadline_seconds=33, labels={"team": "billing"})
    wire.call("CreateTopic", pubsub.Topic(name=OTHER_TOPIC))
    wire.call("DeleteTopic", pubsub.DeleteTopicRequest(topic=OTHER_TOPIC))
    changed = wire.update(ack_deadline_seconds=44)
    wire = restarts.start()
    listed = wire.call("ListTopics", pubsub.ListTopicsRequest(project=PROJECT))
    assert [topic.name for topic in listed.topics] == [TOPIC]
    request = pubsub.GetSubscriptionRequest(subscription=SUBSCRIPTION)
    assert wire.call("GetSubscription", request) == changed
    wire.publish("first")
    assert data_of(wire.pull()) == ["first"]


def test_schemas_and_iam_policies_are_kept_across_a_restart(restarts: Restarts, wire: Wire) -> None:
    """The revisions and etags are unchanged."""
    wire.create()
    avro = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'
    made = wire.call(
        "CreateSchema",
        schema.CreateSchemaRequest(
            parent=PROJECT,
            schema_id="numbers",
            schema=schema.Schema(type=schema.Schema.AVRO, definition=avro),
        ),
    )
    binding = iam.Binding(role="roles/pubsub.viewer", members=["allUsers"])
    policy = wire.call(
        "SetIamPolicy",
        iam.SetIamPolicyRequest(resource=TOPIC, policy=iam.Policy(bindings=[binding])),
    )
    wire = restarts.start()
    request = schema.GetSchemaRequest(name=made.name, view=schema.FULL)
    assert wire.call("GetSchema", request) == made
    assert wire.call("GetIamPolicy", iam.GetIamPolicyRequest(resource=TOPIC)) == policy


def test_after_a_restart_a_recreated_topic_does_not_deliver_to_its_old_subscription(
    restarts: Restarts, wire: Wire
) -> None:
    """The subscription of the deleted topic has its backlog, and nothing of the new topic."""
    wire.create_with("old")
    wire.call("DeleteTopic", pubsub.DeleteTopicRequest(topic=TOPIC))
    wire.call("CreateTopic", pubsub.Topic(name=TOPIC))
    wire.publish("new")
    wire = restarts.start()
    wire.publish("newer")
    config = wire.call("GetSubscription", pubsub.GetSubscriptionRequest(subscription=SUBSCRIPTION))
    assert config.topic == "_deleted-topic_"
    assert data_of(wire.pull()) == ["old"]


def test_a_broker_reset_removes_all_resources_from_the_data_directory(
    restarts: Restarts, wire: Wire
) -> None:
    """The removed data do not reappear."""
    wire.create_with("gone")
    restarts.emulator.reset()
    wire = restarts.start()
    listed = wire.call("ListTopics", pubsub.ListTopicsRequest(project=PROJECT))
    assert not listed.topics


def test_an_emulator_with_a_data_directory_can_be_stopped_and_started_again(
    tmp_path: Path, clock: ManualClock
) -> None:
    """The second start reads the data of the first one."""
    emulator = Emulator(clock=clock, data_dir=tmp_path)
    with emulator, Wire(emulator.endpoint) as wire:
        wire.create_with("kept")
    with emulator:
        assert emulator.backlog(SUBSCRIPTION) == 1


# ---- messages ----------------------------------------------------------------------------------


def test_unacked_messages_are_redelivered_after_a_restart(restarts: Restarts, wire: Wire) -> None:
    """The messages were waiting or leased. Attributes, ID and publish time are unchanged."""
    wire.create()
    message = pubsub.PubsubMessage(data=b"whole", attributes={"colour": "blue"})
    wire.call("Publish", pubsub.PublishRequest(topic=TOPIC, messages=[message]))
    wire.publish("done", "leased", "waiting")
    first, done, _ = wire.pull(3)
    wire.acknowledge(done.ack_id)
    wire = restarts.start()
    again = wire.pull()
    assert data_of(again) == ["whole", "leased", "waiting"]
    assert again[0].message == first.message


def test_ack_ids_from_before_a_restart_acknowledge_no_message(
    restarts: Restarts, wire: Wire
) -> None:
    """The IDs are not assigned again to other messages."""
    wire.create_with("message")
    (before,) = wire.pull()
    wire = restarts.start()
    (after,) = wire.pull()
    assert after.ack_id != before.ack_id
    wire.acknowledge(before.ack_id)
    assert restarts.emulator.backlog(SUBSCRIPTION) == 1


def test_messages_of_an_ordering_key_stay_in_order_across_a_restart_of_the_broker(
    restarts: Restarts, wire: Wire
) -> None:
    """The order is kept if a message in the middle was acknowledged before the first."""
    wire.create(enable_message_ordering=True)
    wire.publish("a1", "a2", "a3", key="a")
    wire.publish("b1", "b2", key="b")
    received = {each.message.data: each.ack_id for each in wire.pull()}
    wire.acknowledge(received[b"a2"], received[b"b1"])
    wire = restarts.start()
    data = data_of(wire.pull())
    assert [each for each in data if each.startswith("a")] == ["a1", "a2", "a3"]
    assert [each for each in data if each.startswith("b")] == ["b2"]


def test_delivery_attempts_of_a_message_are_kept_across_a_restart(
    restarts: Restarts, wire: Wire
) -> None:
    """The fifth failure leads to the dead-letter topic, even if some were before a restart."""
    for name in (OTHER_TOPIC, TOPIC):
        wire.call("CreateTopic", pubsub.Topic(name=name))
    config = pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC)
    config.dead_letter_policy.dead_letter_topic = OTHER_TOPIC
    config.dead_letter_policy.max_delivery_attempts = 5
    wire.call("CreateSubscription", config)
    wire.call("CreateSubscription", pubsub.Subscription(name=OTHER_SUBSCRIPTION, topic=OTHER_TOPIC))
    wire.publish("poison")
    attempts = []
    for _ in range(5):
        (received,) = wire.pull()
        attempts.append(received.delivery_attempt)
        wire.modify(0, received.ack_id)
        wire = restarts.start()
    assert attempts == [1, 2, 3, 4, 5]
    assert restarts.emulator.backlog(SUBSCRIPTION) == 0
    assert restarts.emulator.backlog(OTHER_SUBSCRIPTION) == 1


def test_snapshots_and_their_messages_survive_a_restart(restarts: Restarts, wire: Wire) -> None:
    """A seek after the restart restores the messages that were acknowledged since the snapshot."""
    wire.create_with("before", "between")
    (before, between) = wire.pull()
    wire.acknowledge(before.ack_id)
    wire.call(
        "CreateSnapshot", pubsub.CreateSnapshotRequest(name=SNAPSHOT, subscription=SUBSCRIPTION)
    )
    wire.acknowledge(between.ack_id)
    wire.publish("after")
    wire.acknowledge(*ack_ids_of(wire.pull()))
    wire = restarts.start()
    assert not wire.pull(wait=False)
    wire.call("Seek", pubsub.SeekRequest(subscription=SUBSCRIPTION, snapshot=SNAPSHOT))
    assert data_of(wire.pull()) == ["between", "after"]
    # The effect of the seek survives another restart.
    assert data_of(restarts.start().pull()) == ["between", "after"]


def test_a_snapshot_of_a_deleted_topic_survives_a_restart(restarts: Restarts, wire: Wire) -> None:
    """The subscription can seek to the snapshot, even if another topic has the same name by now."""
    wire.create_with("old")
    wire.call("DeleteTopic", pubsub.DeleteTopicRequest(topic=TOPIC))
    wire.call(
        "CreateSnapshot", pubsub.CreateSnapshotRequest(name=SNAPSHOT, subscription=SUBSCRIPTION)
    )
    wire.acknowledge(*ack_ids_of(wire.pull()))
    wire.call("CreateTopic", pubsub.Topic(name=TOPIC))
    wire = restarts.start()
    wire.call("Seek", pubsub.SeekRequest(subscription=SUBSCRIPTION, snapshot=SNAPSHOT))
    assert data_of(wire.pull()) == ["old"]


def test_snapshots_of_two_deleted_topics_restore_their_own_messages_after_a_restart(
    restarts: Restarts, wire: Wire
) -> None:
    """The topics have no names any more, and had the same number of messages."""
    wire.create()
    wire.call("CreateTopic", pubsub.Topic(name=OTHER_TOPIC))
    wire.call("CreateSubscription", pubsub.Subscription(name=OTHER_SUBSCRIPTION, topic=OTHER_TOPIC))
    subscriptions = {"one": SUBSCRIPTION, "two": OTHER_SUBSCRIPTION}
    for topic, data in ((TOPIC, "one"), (OTHER_TOPIC, "two")):
        publish_to(wire, topic, data)
        wire.call("DeleteTopic", pubsub.DeleteTopicRequest(topic=topic))
    for data, subscription in subscriptions.items():
        snapshot = f"{PROJECT}/snapshots/{data}"
        request = pubsub.CreateSnapshotRequest(name=snapshot, subscription=subscription)
        wire.call("CreateSnapshot", request)
        future = pubsub.SeekRequest(subscription=subscription)
        future.time.FromSeconds(2**32)
        wire.call("Seek", future)
    wire = restarts.start()
    for data, subscription in subscriptions.items():
        snapshot = f"{PROJECT}/snapshots/{data}"
        wire.call("Seek", pubsub.SeekRequest(subscription=subscription, snapshot=snapshot))
        pull = pubsub.PullRequest(subscription=subscription, max_messages=10)
        assert data_of(wire.call("Pull", pull).received_messages) == [data]


def test_retained_messages_can_be_sought_after_a_restart(
    restarts: Restarts, wire: Wire, clock: ManualClock
) -> None:
    """Retained messages are acknowledged messages that the subscription retains."""
    start = clock.now()
    wire.create_with("old", retain_acked_messages=True)
    clock.advance(8 * 86400)
    wire.publish("acknowledged")
    wire.acknowledge(*ack_ids_of(wire.pull()))
    wire = restarts.start()
    wire.seek(int(start))
    assert data_of(wire.pull()) == ["acknowledged"]


def test_a_message_excluded_by_a_subscription_filter_is_not_delivered_after_a_restart(
    restarts: Restarts, wire: Wire
) -> None:
    """The other message is delivered."""
    wire.create(filter='attributes.colour = "blue"')
    messages = [pubsub.PubsubMessage(attributes={"colour": each}) for each in ("red", "blue")]
    wire.call("Publish", pubsub.PublishRequest(topic=TOPIC, messages=messages))
    (received,) = restarts.start().pull()
    assert received.message.attributes["colour"] == "blue"


def test_a_backlog_of_many_publishes_survives_a_restart(restarts: Restarts, wire: Wire) -> None:
    """The publishes are small and large, more than a row or a chunk of the database holds."""
    wire.create()
    sizes = [1, 1, 2_000_000, 700, 3, 2_000_000, 40_000]
    data = []
    for number, size in enumerate(sizes):
        for part in range(300 if size < 1000 else 1):
            data.append(f"{number}-{part}-".ljust(size, "x"))
    for start in range(0, len(data), 250):
        wire.publish(*data[start : start + 250])
    wire = restarts.start()
    received: list[str] = []
    while len(received) < len(data):
        received += data_of(wire.pull(1000))
    assert received == data


# ---- ids ---------------------------------------------------------------------------------------


def test_message_ids_continue_without_a_gap_after_a_clean_restart(
    restarts: Restarts, wire: Wire
) -> None:
    """There is no gap, also if the newest messages are gone."""
    wire.create()
    ids = publish_to(wire, TOPIC, "one", "two")
    wire.acknowledge(*ack_ids_of(wire.pull()))
    assert publish_to(restarts.start(), TOPIC, "three") == [ids[-1] + 1]


@pytest.mark.parametrize("durability", ["memory", "disk"])
def test_message_ids_assigned_before_a_crash_are_not_used_again(
    restarts: Restarts, wire: Wire, durability: str
) -> None:
    """The rule includes IDs of messages that the crash lost."""
    wire.call("CreateTopic", pubsub.Topic(name=TOPIC, labels={LABEL: durability}))
    ids = publish_to(wire, TOPIC, "one", "two", "three")
    assert publish_to(restarts.crash(), TOPIC, "four")[0] > ids[-1]


# ---- classes -----------------------------------------------------------------------------------


def test_a_topic_with_durability_memory_keeps_only_its_settings_across_a_restart(
    restarts: Restarts, wire: Wire
) -> None:
    """The messages live as long as the broker."""
    wire.call("CreateTopic", pubsub.Topic(name=TOPIC, labels={LABEL: "memory"}))
    wire.call("CreateSubscription", pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC))
    wire.publish("lost")
    wire = restarts.start()
    wire.publish("here")
    assert data_of(wire.pull()) == ["here"]


@pytest.mark.parametrize(
    ("settings", "labels"),
    [({"durability": "fsync"}, {}), ({}, {LABEL: "fsync"})],
    ids=["by default", "by label"],
)
def test_with_durability_fsync_the_effect_of_an_answered_call_survives_a_crash(
    restarts: Restarts, settings: dict[str, str], labels: dict[str, str]
) -> None:
    """The test covers a publish, an ack and a change.

    The broker may crash right after the answer.
    """
    wire = restarts.start(**settings)
    wire.call("CreateTopic", pubsub.Topic(name=TOPIC, labels=labels))
    wire.call("CreateSubscription", pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC))
    wire.publish("acknowledged", "kept")
    wire.acknowledge(wire.pull(1)[0].ack_id)
    assert data_of(restarts.crash().pull()) == ["kept"]


def test_with_durability_fsync_an_acknowledgement_confirmed_on_a_stream_survives_a_crash(
    restarts: Restarts,
) -> None:
    """The stream has exactly-once delivery."""
    wire = restarts.start(durability="fsync")
    wire.create_with("acknowledged", enable_exactly_once_delivery=True)
    stream = wire.stream()
    (received,) = stream.messages(1)
    stream.send(ack_ids=[received.ack_id])
    assert _confirmed(stream) == [received.ack_id]
    restarts.crash()
    assert restarts.emulator.backlog(SUBSCRIPTION) == 0


def _confirmed(stream: Stream) -> list[str]:
    while True:
        response = stream.next()
        if response.HasField("acknowledge_confirmation"):
            return list(response.acknowledge_confirmation.ack_ids)


@pytest.mark.parametrize("method", ["CreateTopic", "UpdateTopic"])
def test_a_topic_label_with_an_unknown_durability_class_is_refused(wire: Wire, method: str) -> None:
    """Otherwise a topic would be less durable than its owner believes."""
    wire.create()
    topic = pubsub.Topic(name=TOPIC if method == "UpdateTopic" else OTHER_TOPIC)
    topic.labels[LABEL] = "fsynk"
    request: Any = topic
    if method == "UpdateTopic":
        request = pubsub.UpdateTopicRequest(topic=topic)
        request.update_mask.paths.append("labels")
    with pytest.raises(grpc.RpcError) as failure:
        wire.call(method, request)
    assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "'fsynk'; it must be one of memory, disk, fsync" in str(failure.value.details())


# ---- repeated acknowledgements -----------------------------------------------------------------


def refused(wire: Wire, *ack_ids: str) -> set[str]:
    """Return those of the given IDs that cannot be acknowledged."""
    request = pubsub.AcknowledgeRequest(subscription=SUBSCRIPTION, ack_ids=ack_ids)
    error = wire.start("Acknowledge", request).exception()
    if error is None:
        return set()
    # The broker names valid IDs of a partly refused request as transient failures.
    codes = errors.from_rpc_error(error).metadata
    return {ack_id for ack_id, code in codes.items() if not code.startswith("TRANSIENT_")}


@pytest.mark.parametrize(
    ("durability", "end"), [("disk", "stop"), ("fsync", "stop"), ("fsync", "crash")]
)
def test_an_exactly_once_acknowledgement_repeated_after_a_restart_succeeds(
    restarts: Restarts, wire: Wire, clock: ManualClock, durability: str, end: str
) -> None:
    """The repetition works for eleven minutes. An ID of an ended lease stays refused."""
    wire.call("CreateTopic", pubsub.Topic(name=TOPIC, labels={LABEL: durability}))
    wire.call(
        "CreateSubscription",
        pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC, enable_exactly_once_delivery=True),
    )
    for _ in range(3):
        wire.publish(*["data"] * 500)
    first = [message.ack_id for message in wire.pull(1000)]
    clock.advance(10)
    acked = [message.ack_id for _ in range(2) for message in wire.pull(1000)]
    for chosen in (acked[::3], acked[1::3], acked[2::3]):
        wire.acknowledge(*chosen)
    wire = restarts.start() if end == "stop" else restarts.crash()
    assert restarts.emulator.backlog(SUBSCRIPTION) == 0
    assert refused(wire, *acked) == set()
    assert refused(wire, acked[0], *first[:50]) == set(first[:50])
    clock.advance(300)
    wire = restarts.start()
    assert refused(wire, *acked) == set()
    clock.advance(493)
    assert refused(wire, acked[0]) == {acked[0]}
    # The directory has no data of it.
    wire = restarts.start()
    assert refused(wire, acked[0]) == {acked[0]}


def test_a_recreated_subscription_refuses_ack_ids_acknowledged_before_its_deletion(
    restarts: Restarts, wire: Wire
) -> None:
    """The name is the same."""
    wire.create_with("a", enable_exactly_once_delivery=True)
    (acked,) = (message.ack_id for message in wire.pull())
    wire.acknowledge(acked)
    assert refused(wire, acked) == set()
    wire.delete_subscription()
    wire.call(
        "CreateSubscription",
        pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC, enable_exactly_once_delivery=True),
    )
    assert refused(wire, acked) == {acked}
    assert refused(restarts.start(), acked) == {acked}
