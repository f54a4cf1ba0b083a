"""Events that the engine reports to an observer, and its restoration from them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pytest

from pullstream_emulator.engine import Engine, Record
from pullstream_emulator.engine.observer import LeaseEnd, ObservedDelivery, Observer, Resource
from pullstream_emulator.engine.persisted_state import SnapshotValue
from pullstream_emulator.engine.seq_set import SeqSet
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SNAPSHOT, SUBSCRIPTION, TOPIC, Broker
from tests.emulator.keeper import Keeper


class Notes(Observer):
    """Records short notes of the events."""

    def __init__(self) -> None:
        self.notes: list[tuple[Any, ...]] = []

    def taken(self) -> list[tuple[Any, ...]]:
        """Return the notes since the last call, and clear them."""
        notes, self.notes = self.notes, []
        return notes

    def saved(self, kind: Resource, name: str, value: bytes) -> None:
        self.notes.append(("saved", kind, name))

    def removed(self, kind: Resource, name: str) -> None:
        self.notes.append(("removed", kind, name))

    def published(self, topic: str, records: Sequence[Record]) -> None:
        self.notes.append(("published", topic, [record.seq for record in records]))

    def delivered(self, subscription: str, deliveries: Sequence[ObservedDelivery]) -> None:
        self.notes.append(("delivered", _seqs(deliveries)))

    def acknowledged(self, subscription: str, deliveries: Sequence[ObservedDelivery]) -> None:
        self.notes.append(("acknowledged", _seqs(deliveries)))

    def returned(
        self, subscription: str, deliveries: Sequence[ObservedDelivery], why: LeaseEnd
    ) -> None:
        self.notes.append(("returned", _seqs(deliveries), why, [d.attempts for d in deliveries]))

    def extended(
        self, subscription: str, deliveries: Sequence[ObservedDelivery], seconds: int
    ) -> None:
        self.notes.append(("extended", _seqs(deliveries), seconds))

    def finished(self, subscription: str, seqs: Collection[int]) -> None:
        self.notes.append(("finished", list(seqs)))

    def unfinished(self, subscription: str, seqs: Collection[int]) -> None:
        self.notes.append(("unfinished", list(seqs)))

    def discarded(self, topic: str, up_to: int) -> None:
        self.notes.append(("discarded", topic, up_to))


def _seqs(deliveries: Sequence[ObservedDelivery]) -> list[int]:
    return [delivery.record.seq for delivery in deliveries]


def engine(observer: Observer, clock: ManualClock, **options: Any) -> Engine:
    return Engine(wall=clock.now, monotonic=clock.monotonic, observer=observer, **options)


def observed(**subscription: Any) -> tuple[Broker, Notes]:
    """Return a broker and the notes of all later events."""
    clock, notes = ManualClock(), Notes()
    broker = Broker(clock, engine=engine(notes, clock), **subscription)
    notes.taken()
    return broker, notes


# ---- events --------------------------------------------------------------------------------------


def test_the_engine_observer_receives_each_step_of_a_message_from_publish_to_ack() -> None:
    """The events come in the order in which they happen."""
    broker, notes = observed()
    broker.publish("a", "b")
    assert notes.taken() == [("published", TOPIC, [1, 2])]
    consumer = broker.join(deadline=10)
    a, b = consumer.take()
    broker.modify(60, a)
    broker.nack(b)
    assert notes.taken() == [
        ("delivered", [1, 2]),
        ("extended", [1], 60),
        ("returned", [2], LeaseEnd.NACK, [1]),
    ]
    broker.advance(60)
    assert notes.taken() == [("returned", [1], LeaseEnd.EXPIRED, [1])]
    consumer.take()
    consumer.leave()
    assert notes.taken()[1:] == [("returned", [1, 2], LeaseEnd.GIVEN_BACK, [1, 1])]
    broker.acknowledge(*broker.join().take())
    assert notes.taken() == [
        ("delivered", [1, 2]),
        ("acknowledged", [1, 2]),
        ("finished", [1, 2]),
        ("discarded", TOPIC, 2),
    ]


def test_the_engine_observer_gets_finished_messages_of_an_ordering_key_in_publish_order() -> None:
    """An acknowledgement after an unfinished message of the key finishes nothing yet."""
    broker, notes = observed(enable_message_ordering=True)
    broker.publish("1", "2", key="k")
    one, two = broker.join().take()
    notes.taken()
    broker.acknowledge(two)
    assert notes.taken() == [("acknowledged", [2])]
    broker.acknowledge(one)
    assert notes.taken() == [
        ("acknowledged", [1]),
        ("finished", [1, 2]),
        ("discarded", TOPIC, 2),
    ]


def test_a_message_excluded_by_a_filter_is_finished_at_once_for_the_engine_observer() -> None:
    """The message is never delivered."""
    broker, notes = observed(filter="attributes:wanted")
    broker.publish("a")
    assert notes.taken() == [
        ("published", TOPIC, [1]),
        ("finished", [1]),
        ("discarded", TOPIC, 1),
    ]


def test_the_engine_observer_gets_a_late_acknowledgement_as_the_finish_of_the_message() -> None:
    """The acknowledgement finishes the message, although it already waits for redelivery."""
    broker, notes = observed()
    broker.publish("a")
    (got,) = broker.join(deadline=10).take()
    broker.advance(10)
    notes.taken()
    broker.acknowledge(got)
    assert ("finished", [1]) in notes.taken()


def test_a_seek_reports_finished_and_restored_messages_to_the_engine_observer() -> None:
    """The observer learns of messages that became unfinished, and messages that became finished."""
    broker, notes = observed(retain_acked_messages=True)
    broker.publish("a", "b")
    broker.acknowledge(*broker.join().take(1))
    notes.taken()
    broker.seek(1)
    assert notes.taken() == [("unfinished", [1])]
    broker.seek(2**32)
    ((word, seqs),) = notes.taken()
    assert (word, sorted(seqs)) == ("finished", [1, 2])


def test_the_engine_observer_gets_the_dead_letter_copy_before_the_finish_of_the_original() -> None:
    """A crash between the two leaves a duplicate instead of a loss."""
    broker, notes = observed()
    policy = pubsub.DeadLetterPolicy(dead_letter_topic=TOPIC)
    broker.update(dead_letter_policy=policy)
    broker.publish("bad")
    consumer = broker.join()
    for _ in range(4):
        broker.nack(*consumer.take())
    notes.taken()
    broker.nack(*consumer.take())
    assert notes.taken() == [
        ("delivered", [1]),
        ("returned", [1], LeaseEnd.NACK, [5]),
        ("published", TOPIC, [2]),
        ("finished", [1]),
    ]


def test_the_engine_observer_receives_every_change_of_a_resource() -> None:
    """The event has the whole resource."""
    broker, notes = observed()
    engine = broker.engine
    engine.create_snapshot(pubsub.CreateSnapshotRequest(name=SNAPSHOT, subscription=SUBSCRIPTION))
    engine.detach_subscription(SUBSCRIPTION)
    engine.delete_topic(TOPIC)
    engine.delete_subscription(SUBSCRIPTION)
    engine.delete_snapshot(SNAPSHOT)
    assert notes.taken() == [
        ("saved", Resource.SNAPSHOT, SNAPSHOT),
        ("saved", Resource.SUBSCRIPTION, SUBSCRIPTION),
        ("saved", Resource.SNAPSHOT, SNAPSHOT),
        ("removed", Resource.TOPIC, TOPIC),
        ("removed", Resource.SUBSCRIPTION, SUBSCRIPTION),
        ("removed", Resource.SNAPSHOT, SNAPSHOT),
    ]


def test_the_engine_observer_is_told_of_discarded_messages_only_up_to_the_oldest_kept_one() -> None:
    """The position moves in steps. One old message holds it back as long as it is kept."""
    broker, notes = observed()
    for _ in range(30):
        broker.publish(*"x" * 100)
    first, *rest = (got for _ in range(3) for got in broker.join().take())
    broker.acknowledge(*rest)
    assert [note for note in notes.taken() if note[0] == "discarded"] == []
    broker.acknowledge(first)
    assert notes.taken()[-1] == ("discarded", TOPIC, 3000)


# ---- restoration ---------------------------------------------------------------------------------


def again(broker: Broker, keeper: Keeper) -> Broker:
    """Return the broker after a restart."""
    assert isinstance(broker.clock, ManualClock)
    broker.engine = engine(keeper, broker.clock)
    broker.engine.restore(keeper.everything())
    return broker


def kept(**fields: Any) -> tuple[Broker, Keeper]:
    clock, keeper = ManualClock(), Keeper()
    return Broker(clock, engine=engine(keeper, clock), **fields), keeper


def test_an_engine_restored_from_storage_has_the_backlog_of_the_former_engine() -> None:
    """Attempts are kept. Leased messages are ready again, and old ack IDs are stale."""
    broker, keeper = kept()
    broker.publish("acked", "nacked", "leased", "waiting")
    acked, nacked, leased = broker.join().take(3)
    broker.acknowledge(acked)
    broker.nack(nacked)
    broker = again(broker, keeper)
    assert broker.acknowledge(leased) == [leased.ack_id]
    got = broker.join().take()
    assert [(g.data, g.failed_before) for g in got] == [
        ("nacked", 1),
        ("leased", 0),
        ("waiting", 0),
    ]
    assert {g.ack_id for g in got}.isdisjoint({acked.ack_id, nacked.ack_id, leased.ack_id})
    broker.acknowledge(*got)
    assert (broker.backlog, broker.engine.kept_bytes) == (0, 0)


def test_an_engine_restored_from_storage_continues_the_message_ids() -> None:
    """The numbers go on even if the newest messages were removed long ago."""
    broker, keeper = kept()
    broker.publish("a", "b")
    broker.acknowledge(*broker.join().take())
    assert again(broker, keeper).publish("c") == ["3"]


def test_an_engine_restored_from_storage_has_the_resources_of_the_former_engine() -> None:
    """The resources are unchanged, including those of a deleted topic."""
    broker, keeper = kept(labels={"a": "b"})
    broker.publish("a")
    broker.take_snapshot()
    broker.engine.delete_topic(TOPIC)
    broker.engine.create_topic(pubsub.Topic(name=TOPIC, labels={"c": "d"}))
    before = (
        broker.engine.get_topic(TOPIC),
        broker.engine.get_subscription(SUBSCRIPTION),
        broker.engine.get_snapshot(SNAPSHOT),
    )
    broker = again(broker, keeper)
    after = (
        broker.engine.get_topic(TOPIC),
        broker.engine.get_subscription(SUBSCRIPTION),
        broker.engine.get_snapshot(SNAPSHOT),
    )
    assert after == before
    assert broker.publish("of the new topic") == ["1"]
    assert broker.join().take_data() == ["a"]


def test_a_seek_to_a_snapshot_in_an_engine_restored_from_storage_restores_the_backlog() -> None:
    """The messages of the snapshot are kept."""
    broker, keeper = kept()
    broker.publish("1")
    broker.take_snapshot()
    broker.publish("2")
    broker.acknowledge(*broker.join().take())
    broker = again(broker, keeper)
    broker.publish("3")
    broker.seek_to_snapshot()
    assert broker.join().take_data() == ["1", "2", "3"]


def test_messages_of_an_ordering_key_stay_in_order_in_an_engine_restored_from_storage() -> None:
    """A message that was acknowledged after an unfinished one is delivered again."""
    broker, keeper = kept(enable_message_ordering=True)
    broker.publish("1", "2", "3", key="k")
    _, two, _ = broker.join().take()
    broker.acknowledge(two)
    broker = again(broker, keeper)
    broker.publish("4", key="k")
    assert broker.join().take_data() == ["1", "2", "3", "4"]


def test_retained_messages_are_kept_in_an_engine_restored_from_storage() -> None:
    """A seek to an earlier time needs them."""
    broker, keeper = kept(retain_acked_messages=True)
    broker.publish("1")
    broker.acknowledge(*broker.join().take())
    broker = again(broker, keeper)
    assert broker.backlog == 0
    broker.seek(1)
    assert broker.join().take_data() == ["1"]


def test_messages_past_their_retention_are_dropped_in_an_engine_restored_from_storage() -> None:
    """The time of the restart counts."""
    broker, keeper = kept()
    broker.publish("1")
    broker = again(broker, keeper)
    broker.advance(7 * 86400)
    assert broker.backlog == 0


def test_an_engine_restored_from_storage_notifies_the_pusher_of_push_subscriptions() -> None:
    """The pusher starts with the notification."""
    config = pubsub.PushConfig(push_endpoint="https://example.com")
    _, keeper = kept(push_config=config)
    told: list[str] = []
    restored = engine(keeper, ManualClock(), on_push=told.append)
    restored.restore(keeper.everything())
    assert (told, list(restored.push_subscriptions())) == ([SUBSCRIPTION], [SUBSCRIPTION])


def test_restoring_stored_resources_into_an_engine_that_is_not_empty_is_refused() -> None:
    """Existing resources would conflict."""
    broker, keeper = kept()
    with pytest.raises(ValueError, match="not empty"):
        broker.engine.restore(keeper.everything())


@pytest.mark.parametrize("unacked", [[], [1], [1, 2, 3], [3, 1], [5, 7, 8, 9, 2**40]])
def test_a_stored_snapshot_value_survives_encoding_and_decoding(
    unacked: list[int],
) -> None:
    """The event has its settings and its unacknowledged messages."""
    config = pubsub.Snapshot(name=SNAPSHOT, topic=TOPIC)
    value = SnapshotValue(config, SUBSCRIPTION, 17, SeqSet(unacked))
    assert SnapshotValue.decode(value.encode()) == value
