"""The history of a broker, for assertions in tests."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.engine.delivery.delivery_state import Delivery
from pullstream_emulator.engine.observer import LeaseEnd, Observer, ObserverFanout
from pullstream_emulator.engine.record import Record
from pullstream_emulator.history import History, Kind
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import NotFound
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import PROJECT, SUBSCRIPTION, TOPIC
from tests.emulator.wire import TIMEOUT, Wire

DEAD = f"{PROJECT}/topics/dead"


@pytest.fixture
def history(emulator: Emulator, wire: Wire) -> History:
    """Return the history of a broker with a topic and a subscription."""
    wire.create()
    return emulator.history


# ---- events --------------------------------------------------------------------------------------


def test_the_history_has_an_event_for_each_publish(
    history: History, emulator: Emulator, clock: ManualClock
) -> None:
    """The event has its topic, its time on the broker's clock, and the message."""
    clock.advance(5)
    message_id = emulator.publish(TOPIC, "a", ordering_key="k", colour="red")
    (event,) = history.publishes()
    assert (event.kind, event.resource, event.time) == (Kind.PUBLISH, TOPIC, clock.now())
    assert (event.message_id, event.data) == (message_id, b"a")
    assert (event.message.ordering_key, dict(event.message.attributes)) == ("k", {"colour": "red"})


def test_the_history_has_an_event_for_each_outcome_of_a_delivery(
    history: History, wire: Wire, clock: ManualClock
) -> None:
    """The event has the lease and the delivery attempt."""
    wire.publish("a")
    (first,) = wire.pull()
    wire.modify(30, first.ack_id)
    wire.modify(0, first.ack_id)
    (second,) = wire.pull()
    clock.advance(10)
    (third,) = wire.pull()
    wire.acknowledge(third.ack_id)
    told = [(e.kind, e.ack_id, e.attempt, e.seconds) for e in history.events()[1:]]
    assert told == [
        (Kind.DELIVERY, first.ack_id, 1, 0),
        (Kind.DEADLINE_CHANGE, first.ack_id, 1, 30),
        (Kind.NACK, first.ack_id, 1, 0),
        (Kind.DELIVERY, second.ack_id, 2, 0),
        (Kind.EXPIRY, second.ack_id, 2, 0),
        (Kind.DELIVERY, third.ack_id, 3, 0),
        (Kind.ACK, third.ack_id, 3, 0),
    ]
    assert {event.resource for event in history.events()[1:]} == {SUBSCRIPTION}


def test_the_history_records_the_expiry_of_a_lease_that_outlives_its_streaming_pull(
    history: History, wire: Wire, emulator: Emulator, clock: ManualClock
) -> None:
    """The end of the stream returns nothing."""
    wire.publish("a")
    stream = wire.stream()
    stream.messages(1)
    emulator.faults.close_streams()
    stream.end()
    assert history.returns() == history.nacks() == history.expiries() == []
    clock.advance(600)
    assert [event.attempt for event in history.expiries("billing")] == [1]
    wire.pull()
    assert [event.attempt for event in history.deliveries()] == [1, 2]


def test_the_history_records_no_nacks_for_messages_returned_by_a_closed_streaming_pull() -> None:
    """With leases that end with their stream, this is a separate kind of event without attempt."""
    with Emulator(return_leases_on_disconnect=True) as emulator, Wire(emulator.endpoint) as wire:
        wire.create_with("a")
        stream = wire.stream()
        stream.messages(1)
        emulator.faults.close_streams()
        stream.end()
        history = emulator.history
        assert len(wire.pull()) == 1
        assert [event.attempt for event in history.returns("billing")] == [1]
        assert history.nacks() == history.expiries() == []
        assert [event.attempt for event in history.deliveries()] == [1, 1]


def test_history_events_can_be_selected_by_kind_and_resource(history: History, wire: Wire) -> None:
    """A resource is given by its full name, its ID, or a pattern."""
    second = f"{SUBSCRIPTION}-2"
    wire.call("CreateSubscription", pubsub.Subscription(name=second, topic=TOPIC))
    wire.publish("a", "b")
    wire.acknowledge(*(m.ack_id for m in wire.pull()))
    for pattern in ("billing", SUBSCRIPTION, "bill?ng"):
        assert len(history.deliveries(pattern)) == len(history.acks(pattern)) == 2
    assert history.deliveries(second) == []
    assert len(history.events(Kind.PUBLISH, Kind.ACK)) == 4
    assert len(history.events(resource="o*")) == 2


def test_history_events_are_immutable(history: History, wire: Wire) -> None:
    """Later events and readers do not change earlier events."""
    wire.publish("a")
    (received,) = wire.pull()
    (delivery,) = history.deliveries()
    before = tuple(delivery)
    wire.modify(0, received.ack_id)
    wire.pull()
    delivery.message.data = b"b"
    assert (tuple(delivery), delivery.data) == (before, b"a")
    with pytest.raises(AttributeError):
        delivery.attempt = 7  # type: ignore[misc]


# ---- one message ---------------------------------------------------------------------------------


def test_the_history_report_about_a_message_has_all_events_of_that_message(
    history: History, emulator: Emulator, wire: Wire, clock: ManualClock
) -> None:
    """The report has no events of other messages."""
    wire.publish("other")
    message_id = emulator.publish(TOPIC, b"a")
    other, a = wire.pull()
    wire.acknowledge(other.ack_id)
    wire.modify(20, a.ack_id)
    clock.advance(20)
    (a,) = wire.pull()
    wire.modify(0, a.ack_id)
    (a,) = wire.pull()
    wire.acknowledge(a.ack_id)
    told = emulator.message(message_id)
    assert (told.id, told.topic, told.message.data) == (message_id, TOPIC, b"a")
    assert [event.attempt for event in told.deliveries] == [1, 2, 3]
    assert [len(told.acks), len(told.nacks), len(told.expiries)] == [1, 1, 1]
    assert [event.seconds for event in told.deadline_changes] == [20]


def test_a_history_lookup_of_a_message_id_used_in_several_topics_requires_the_topic(
    emulator: Emulator, wire: Wire
) -> None:
    """Each topic counts from 1."""
    wire.create()
    wire.call("CreateTopic", pubsub.Topic(name=DEAD))
    first, second = emulator.publish(TOPIC, "a"), emulator.publish(DEAD, "b")
    assert first == second
    with pytest.raises(LookupError, match=f"several topics have a message '{first}': .*{DEAD}"):
        emulator.message(first)
    assert emulator.message(first, "dead").message.data == b"b"
    assert emulator.message(first, TOPIC).message.data == b"a"


def test_looking_up_an_unknown_message_id_in_the_history_raises_an_error(
    emulator: Emulator,
) -> None:
    """The error names the message."""
    with pytest.raises(LookupError, match="no message '7'"):
        emulator.message("7")


def test_the_history_lists_messages_of_a_topic_in_publish_order(
    emulator: Emulator, wire: Wire
) -> None:
    """The list holds without subscriptions and after all acknowledgements."""
    wire.create_with("a", "b")
    wire.acknowledge(*(m.ack_id for m in wire.pull()))
    wire.publish("c")
    assert [message.data for message in emulator.messages(TOPIC)] == [b"a", b"b", b"c"]
    assert emulator.messages(DEAD) == []


# ---- limits --------------------------------------------------------------------------------------


def records(*sizes: int) -> list[Record]:
    return [Record(seq, "", b"x" * size, 0) for seq, size in enumerate(sizes, start=1)]


def test_a_full_history_drops_its_oldest_events() -> None:
    """The history keeps a maximum number of events."""
    history = History(ManualClock(), limit=3)
    history.published(TOPIC, records(1, 1, 1, 1, 1))
    assert [event.message_id for event in history.events()] == ["3", "4", "5"]


def test_a_history_above_its_byte_limit_drops_its_oldest_events() -> None:
    """The memory of events is limited as well."""
    history = History(ManualClock(), max_bytes=100)
    history.published(TOPIC, records(60, 30, 60))
    assert [event.message_id for event in history.events()] == ["2", "3"]
    history.published(TOPIC, records(101))
    assert history.events() == []
    history.published(TOPIC, records(100))
    assert len(history.events()) == 1


def test_a_cleared_history_contains_only_events_from_after_the_clearing(
    history: History, wire: Wire
) -> None:
    """A test does this between two of its parts."""
    wire.publish("a")
    history.clear()
    assert history.events() == []
    wire.publish("b")
    assert [event.data for event in history.publishes()] == [b"b"]


def test_a_history_limit_of_zero_keeps_no_events() -> None:
    """Waiting for events still works."""
    with Emulator(history=0) as emulator, Wire(emulator.endpoint) as wire:
        wire.create_with("a")
        with acknowledging(wire):
            emulator.wait_until_acked(SUBSCRIPTION, TIMEOUT)
        assert emulator.history.events() == []


def test_creating_a_history_with_a_negative_limit_raises_a_value_error() -> None:
    """The error names the argument."""
    with pytest.raises(ValueError, match="limit must be 0 or more: -1"):
        History(limit=-1)


# ---- waiting -------------------------------------------------------------------------------------


class acknowledging:  # noqa: N801 - it reads as a function
    """Acknowledges one message in the background when it arrives."""

    def __init__(self, wire: Wire) -> None:
        self._thread = threading.Thread(target=self._run, args=[wire])

    def _run(self, wire: Wire) -> None:
        wire.acknowledge(wire.pull(1)[0].ack_id)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._thread.join()


def test_history_wait_until_acked_returns_when_all_messages_are_acknowledged(
    history: History, emulator: Emulator, wire: Wire
) -> None:
    """The wait returns at once without messages, and otherwise with the last acknowledgement."""
    emulator.wait_until_acked(SUBSCRIPTION, 0)
    wire.publish("a")
    with acknowledging(wire):
        emulator.wait_until_acked(SUBSCRIPTION, TIMEOUT)
        assert len(history.acks()) == 1


def test_history_wait_until_acked_times_out_with_the_number_of_unacked_messages(
    emulator: Emulator, wire: Wire
) -> None:
    """The timeout is in seconds of real time, independent of the broker's clock."""
    wire.create_with("a", "b")
    with pytest.raises(TimeoutError, match=f"{SUBSCRIPTION} has 2 messages .* within 0.01 s"):
        emulator.wait_until_acked(SUBSCRIPTION, 0.01)


def test_history_wait_until_acked_fails_when_the_subscription_is_deleted(
    history: History, emulator: Emulator, wire: Wire
) -> None:
    """The error is the same as for every call that names the subscription."""
    wire.publish("a")
    deleting = threading.Timer(0.05, wire.delete_subscription)
    deleting.start()
    with pytest.raises(NotFound):
        emulator.wait_until_acked(SUBSCRIPTION, TIMEOUT)
    deleting.join()


def test_history_wait_until_evaluates_its_condition_after_each_event(
    history: History, wire: Wire
) -> None:
    """The condition is evaluated after each event."""
    publishing = threading.Timer(0.05, wire.publish, ["a", "b"])
    publishing.start()
    history.wait_until(lambda: len(history.publishes()) == 2, TIMEOUT)
    publishing.join()
    with pytest.raises(TimeoutError, match=r"did not become true within 0\.01 s"):
        history.wait_until(lambda: len(history.publishes()) == 3, 0.01)


def test_history_wait_until_notices_a_condition_that_becomes_true_without_an_event(
    history: History,
) -> None:
    """An example is a future of the test. The condition is also evaluated periodically."""
    answers = iter([False, False, False, True])
    history.wait_until(lambda: next(answers), TIMEOUT)


# ---- several observers ---------------------------------------------------------------------------


class Told(Observer):
    """Records the observer and the event. Implements returns and discards only."""

    def __init__(self, name: str, log: list[tuple[str, str]]) -> None:
        self._note: Callable[[str], None] = lambda what: log.append((name, what))

    def returned(self, subscription: str, deliveries: object, why: LeaseEnd) -> None:
        self._note(f"{subscription} {why.value}")

    def discarded(self, topic: str, up_to: int) -> None:
        self._note(f"{topic} {up_to}")


def test_an_observer_fanout_passes_each_event_to_every_observer_in_order() -> None:
    """Each receives the events it implements. A history keeps its own kinds."""
    log: list[tuple[str, str]] = []
    history = History(ManualClock())
    observers = ObserverFanout(Told("first", log), history, Told("second", log))
    (record,) = records(1)
    delivery = Delivery(record, None)
    delivery.attempts = 1
    observers.returned("s", [delivery], LeaseEnd.NACK)
    observers.discarded("t", 7)
    observers.acknowledged("s", [delivery])
    observers.finished("s", [1])
    assert log == [("first", "s nack"), ("second", "s nack"), ("first", "t 7"), ("second", "t 7")]
    assert [event.kind for event in history.events()] == [Kind.NACK, Kind.ACK]
