"""Snapshots: creation, lookup, change, deletion and expiration."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from pullstream_protocol.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import PROJECT, SNAPSHOT, SUBSCRIPTION, TOPIC, Broker, broker_holding
from tests.emulator.wire import Wire, data_of

HOUR = 3600
DAY = 24 * HOUR


def create(broker: Broker, name: str = SNAPSHOT, **labels: str) -> pubsub.Snapshot:
    request = pubsub.CreateSnapshotRequest(name=name, subscription=SUBSCRIPTION, labels=labels)
    return broker.engine.create_snapshot(request)


def update(broker: Broker, *paths: str, **fields: Any) -> pubsub.Snapshot:
    request = pubsub.UpdateSnapshotRequest(snapshot=pubsub.Snapshot(name=SNAPSHOT, **fields))
    request.update_mask.paths.extend(paths)
    return broker.engine.update_snapshot(request)


def listed(broker: Broker) -> list[str]:
    request = pubsub.ListSnapshotsRequest(project=PROJECT)
    return [snapshot.name for snapshot in broker.engine.list_snapshots(request).snapshots]


def lifetime(broker: Broker) -> float:
    """Return the remaining lifetime of the snapshot in seconds."""
    expires = broker.engine.get_snapshot(SNAPSHOT).expire_time
    return expires.seconds + expires.nanos / 1e9 - broker.clock.now()


def test_get_snapshot_returns_the_created_snapshot(broker: Broker) -> None:
    """The response has its topic and its expiration time."""
    snapshot = create(broker, color="red")
    assert broker.engine.get_snapshot(SNAPSHOT) == snapshot
    assert (snapshot.name, snapshot.topic, dict(snapshot.labels)) == (
        SNAPSHOT,
        TOPIC,
        {"color": "red"},
    )
    assert lifetime(broker) == 7 * DAY


def test_the_lifetime_of_a_snapshot_is_seven_days_less_the_age_of_the_backlog() -> None:
    """The age is that of the oldest unacknowledged message."""
    broker = broker_holding("acked")
    broker.acknowledge(*broker.join().take())
    broker.advance(DAY)
    broker.publish("old")
    broker.advance(DAY)
    broker.publish("young")
    create(broker)
    assert lifetime(broker) == 6 * DAY


def test_a_snapshot_that_would_expire_within_an_hour_is_refused() -> None:
    """A snapshot must have at least one hour to live."""
    broker = broker_holding("old", message_retention_duration=Duration(seconds=31 * DAY))
    broker.advance(7 * DAY - HOUR + 1)
    with pytest.raises(FailedPrecondition, match="less than 1h"):
        create(broker)
    assert listed(broker) == []


def test_a_snapshot_expires_after_its_lifetime() -> None:
    """The snapshot expires exactly on time. Messages that only it kept are removed."""
    broker = broker_holding("a")
    create(broker)
    broker.acknowledge(*broker.join().take())
    broker.publish("b")
    broker.acknowledge(*broker.join().take())
    broker.advance(7 * DAY - 1)
    assert listed(broker) == [SNAPSHOT]
    assert broker.engine.kept_bytes > 0
    broker.advance(1)
    assert listed(broker) == []
    assert broker.engine.kept_bytes == 0


def test_deleting_a_snapshot_frees_the_memory_of_messages_that_only_the_snapshot_kept() -> None:
    """Messages that only it kept are removed, too."""
    broker = broker_holding("a")
    create(broker)
    broker.acknowledge(*broker.join().take())
    broker.engine.delete_snapshot(SNAPSHOT)
    assert (listed(broker), broker.engine.kept_bytes) == ([], 0)
    with pytest.raises(NotFound, match=r"Resource not found \(resource=before\)\."):
        broker.engine.get_snapshot(SNAPSHOT)


def test_a_snapshot_is_kept_when_its_subscription_is_deleted() -> None:
    """Another subscription of the topic can seek to it."""
    broker = broker_holding("a")
    create(broker)
    broker.engine.delete_subscription(SUBSCRIPTION)
    broker.engine.create_subscription(pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC))
    broker.seek_to_snapshot()
    assert broker.join().take_data() == ["a"]


def test_a_snapshot_without_a_name_gets_a_generated_name(broker: Broker) -> None:
    """The name is in the subscription's project."""
    name = create(broker, name="").name
    assert name.startswith(f"{PROJECT}/snapshots/")
    assert listed(broker) == [name]


def test_snapshots_are_listed_by_project_and_by_topic(broker: Broker) -> None:
    """A list has the snapshots of a project, in pages, or the names of those of a topic."""
    for letter in "cab":
        create(broker, f"{PROJECT}/snapshots/{letter * 3}")
    create(broker, "projects/other/snapshots/ddd")
    assert [name[-3:] for name in listed(broker)] == ["aaa", "bbb", "ccc"]
    request = pubsub.ListSnapshotsRequest(project=PROJECT, page_size=2)
    first = broker.engine.list_snapshots(request)
    request.page_token = first.next_page_token
    (last,) = broker.engine.list_snapshots(request).snapshots
    assert last.name[-3:] == "ccc"
    of_topic = broker.engine.list_topic_snapshots(pubsub.ListTopicSnapshotsRequest(topic=TOPIC))
    assert [name[-3:] for name in of_topic.snapshots] == ["ddd", "aaa", "bbb", "ccc"]


def test_labels_and_expire_time_of_a_snapshot_can_be_changed_by_an_update(broker: Broker) -> None:
    """Only the named fields change."""
    create(broker, color="red")
    assert update(broker, "labels", labels={"size": "xl"}).labels == {"size": "xl"}
    soon = Timestamp(seconds=int(broker.clock.now()) + HOUR)
    assert update(broker, "expire_time", expire_time=soon).expire_time == soon
    broker.advance(HOUR)
    assert listed(broker) == []


@pytest.mark.parametrize("path", ["name", "topic"])
def test_a_snapshot_update_that_changes_name_or_topic_is_refused(broker: Broker, path: str) -> None:
    """Name and topic are its identity."""
    create(broker)
    with pytest.raises(InvalidArgument) as refused:
        update(broker, path)
    assert refused.value.message == (
        "Invalid update_mask provided in the UpdateSnapshotRequest: "
        f"the '{path}' field in the Snapshot is not mutable."
    )


def test_a_snapshot_update_without_a_mask_is_refused(broker: Broker) -> None:
    """The rule is the same as for topics and subscriptions."""
    create(broker)
    with pytest.raises(InvalidArgument, match="UpdateSnapshotRequest must be set"):
        update(broker)


@pytest.mark.parametrize("seconds", [-1, 0, 7 * DAY + 1])
def test_the_expire_time_of_a_snapshot_must_be_within_its_longest_lifetime(seconds: int) -> None:
    """A past time is refused, too."""
    broker = Broker()
    before = create(broker)
    time = Timestamp(seconds=int(broker.clock.now()) + seconds)
    with pytest.raises(InvalidArgument, match=r"\(argument=expire_time\)"):
        update(broker, "expire_time", expire_time=time)
    assert broker.engine.get_snapshot(SNAPSHOT) == before


def test_invalid_snapshot_requests_are_refused(broker: Broker) -> None:
    """Each error has the code and text of the production service."""
    create(broker)
    cases = [
        (AlreadyExists, SNAPSHOT, SUBSCRIPTION, {}, r"\(resource=before\)"),
        (InvalidArgument, "snapshots/x", SUBSCRIPTION, {}, r"\(name=snapshots/x\)"),
        (InvalidArgument, SNAPSHOT, "nonsense", {}, r"\(name=nonsense\)"),
        (NotFound, f"{SNAPSHOT}2", f"{SUBSCRIPTION}2", {}, r"\(resource=billing2\)"),
        (InvalidArgument, f"{SNAPSHOT}2", SUBSCRIPTION, {"": ""}, "Invalid labels"),
    ]
    for error, name, subscription, labels, text in cases:
        request = pubsub.CreateSnapshotRequest(name=name, subscription=subscription, labels=labels)
        with pytest.raises(error, match=text):
            broker.engine.create_snapshot(request)
    assert listed(broker) == [SNAPSHOT]


def test_all_snapshot_methods_can_be_called_over_grpc(wire: Wire) -> None:
    """The test covers all their calls and a seek."""
    wire.create_with("a")
    request = pubsub.CreateSnapshotRequest(name=SNAPSHOT, subscription=SUBSCRIPTION)
    snapshot = wire.call("CreateSnapshot", request)
    assert wire.call("GetSnapshot", pubsub.GetSnapshotRequest(snapshot=SNAPSHOT)) == snapshot
    lists = wire.call("ListSnapshots", pubsub.ListSnapshotsRequest(project=PROJECT))
    assert list(lists.snapshots) == [snapshot]
    names = wire.call("ListTopicSnapshots", pubsub.ListTopicSnapshotsRequest(topic=TOPIC))
    assert list(names.snapshots) == [SNAPSHOT]
    changed = pubsub.UpdateSnapshotRequest(
        snapshot=pubsub.Snapshot(name=SNAPSHOT, labels={"a": "b"})
    )
    changed.update_mask.paths.append("labels")
    assert wire.call("UpdateSnapshot", changed).labels == {"a": "b"}
    wire.acknowledge(*(received.ack_id for received in wire.pull()))
    wire.call("Seek", pubsub.SeekRequest(subscription=SUBSCRIPTION, snapshot=SNAPSHOT))
    assert data_of(wire.pull()) == ["a"]
    wire.call("DeleteSnapshot", pubsub.DeleteSnapshotRequest(snapshot=SNAPSHOT))
    lists = wire.call("ListSnapshots", pubsub.ListSnapshotsRequest(project=PROJECT))
    assert list(lists.snapshots) == []
