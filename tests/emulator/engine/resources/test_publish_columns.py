"""A request that is read by columns has the same effect as one that is read message by message."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullstream_emulator.engine import Consumer
from pullstream_emulator.engine.record import Record, RecordRun
from pullstream_emulator.engine.resources import publish_columns
from pullstream_emulator.engine.resources.publish_columns import MIN_MESSAGES, read
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import InvalidArgument
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION, TOPIC, Broker

texts = st.sampled_from(["", "a", "key", "googclient", "grün", "n" * 64, "n" * 257, "v" * 1025])
messages = st.builds(
    pubsub.PubsubMessage,
    data=st.binary(max_size=3),
    attributes=st.dictionaries(texts, texts, max_size=2),
    ordering_key=texts,
    message_id=st.sampled_from(["", "", "", "7"]),
    publish_time=st.sampled_from([None, None, None, {"seconds": 3, "nanos": 7}]),
)
requests = st.lists(messages, min_size=1, max_size=6)

# Serialized fields of a message, as any program may send them: some of them several times, empty,
# with another wire type, or unknown.
fields = st.sampled_from(
    [
        b"\n\x01d",
        b"\n\x00",
        b"\n\x02dd",
        b"\x12\x06\n\x01a\x12\x01v",
        b"\x12\x06\n\x01a\x12\x01w",
        b"\x12\x03\x12\x01v",
        b"\x12\x00",
        b"\x12\x06\n\x01a\x1a\x01u",
        b"*\x01k",
        b"*\x00",
        b"\x1a\x017",
        b"\x1a\x00",
        b"\x22\x00",
        b"\x22\x02\x08\x03",
        b"J\x01u",
        b"\x08\x03",
        b"\x18\x03",
        b"(\x03",
    ]
)
serialized = st.lists(
    st.lists(fields, max_size=3).map(lambda some: b"\n\x01d" + b"".join(some)),
    min_size=1,
    max_size=6,
)

DATA = {"data": b"x"}
FIT = {"data": b"x", "attributes": {"name": "value"}, "ordering_key": "key"}
MANY = {f"name-{n}": "" for n in range(101)}


def request_of(*fields: dict[str, Any]) -> pubsub.PublishRequest:
    each = [pubsub.PubsubMessage(**one) for one in fields]
    return pubsub.PublishRequest(topic=TOPIC, messages=each)


def published(request: pubsub.PublishRequest) -> tuple[Any, ...]:
    """Return the IDs, the delivered messages and the kept bytes; or the error."""
    broker = Broker(ManualClock(), enable_message_ordering=True)
    copy = pubsub.PublishRequest()
    copy.CopyFrom(request)
    try:
        ids = broker.engine.publish(copy)
    except InvalidArgument as error:
        return (str(error), broker.engine.kept_bytes, broker.backlog)
    kept = broker.engine.kept_bytes
    consumer = Consumer(ack_deadline=10, wake=lambda: None)
    taken = broker.engine.take(broker.engine.join(SUBSCRIPTION, consumer), consumer)
    got = sorted(
        (d.record.seq, d.record.message().SerializeToString(deterministic=True)) for _, d in taken
    )
    sizes = sum(delivery.record.size for _, delivery in taken)
    keys = [delivery.record.ordering_key for _, delivery in taken]
    return (list(ids), got, sorted(keys), kept, sizes)


def has_same_effect(request: pubsub.PublishRequest) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publish_columns, "MIN_MESSAGES", 1)
        by_columns = published(request)
        patch.setattr(publish_columns, "MIN_MESSAGES", 1001)
        return by_columns == published(request)


@given(requests)
def test_every_request_has_the_same_effect_by_columns_and_by_messages(
    each: list[pubsub.PubsubMessage],
) -> None:
    assert has_same_effect(pubsub.PublishRequest(topic=TOPIC, messages=each))


@given(serialized)
def test_a_request_of_any_program_has_the_same_effect_by_columns_and_by_messages(
    each: list[bytes],
) -> None:
    parts = [b"\x12" + bytes([len(one)]) + one for one in each]
    request = pubsub.PublishRequest.FromString(b"".join(parts))
    request.topic = TOPIC
    assert has_same_effect(request)


@pytest.mark.parametrize(
    ("name", "odd"),
    [
        ("an empty message", {}),
        ("attributes without data", {"attributes": {"name": "value"}}),
        ("an ID", {**FIT, "message_id": "1"}),
        ("a publish time", {**FIT, "publish_time": {"seconds": 1}}),
        ("no ordering key", {"data": b"x"}),
        ("a long ordering key", {"data": b"x", "ordering_key": "k" * 1025}),
        ("an empty attribute name", {**FIT, "attributes": {"": "value"}}),
        ("a reserved attribute name", {**FIT, "attributes": {"googid": "value"}}),
        ("a long attribute name", {**FIT, "attributes": {"n" * 257: "value"}}),
        ("a long attribute value", {**FIT, "attributes": {"name": "v" * 1025}}),
        ("many attributes", {**FIT, "attributes": MANY}),
    ],
)
def test_a_request_with_an_odd_message_is_read_message_by_message(
    name: str, odd: dict[str, Any]
) -> None:
    """Its other messages have all fields that a column needs."""
    fit = [FIT] * MIN_MESSAGES
    assert read(request_of(*fit)) is not None
    for at in (0, MIN_MESSAGES):
        assert read(request_of(*fit[:at], odd, *fit[at:])) is None, name


def test_a_small_request_is_read_message_by_message() -> None:
    """A run takes more memory than its records if it has few messages."""
    assert read(request_of(*[DATA] * MIN_MESSAGES)) is not None
    assert read(request_of(*[DATA] * (MIN_MESSAGES - 1))) is None


@given(st.integers(1, 1020), st.integers(1, 30), st.integers(0, 10**13))
def test_the_size_of_a_run_is_the_size_of_its_records(first: int, count: int, at: int) -> None:
    """The numbers of a run may have one digit more from one message to the next."""
    run = RecordRun(first, at, [b"\n\x01x"] * count)
    size, encoded = run.size, run.encoded()
    assert [record.encoded for record in run] == encoded == run.encoded()
    assert sum(record.size for record in run) == size
    assert [record.seq for record in run] == list(range(first, first + count))
    again = [Record.decode(record.seq, record.encoded) for record in run]
    assert {(record.publish_ms, record.message().message_id) for record in again} == {
        (at, str(record.seq)) for record in run
    }


def test_waiting_messages_of_a_large_request_have_no_records() -> None:
    """A consumer that takes one of them needs all records of the run, which keep no other bytes."""
    broker = Broker()
    broker.publish(*["x"] * 10)
    log = broker.engine.registry.topics[TOPIC].log
    places = log._records._segments[0].places
    assert {type(place) for place in places} == {RecordRun}
    (got,) = broker.join().take(1)
    assert {type(place) for place in places} == {Record}
    broker.acknowledge(got)
    assert sum(place is not None for place in places) == 9


def test_a_consumer_without_room_leaves_the_waiting_messages_as_they_are() -> None:
    """Otherwise each message would get an object as soon as a consumer is full."""
    broker = Broker()
    broker.publish(*["x"] * 100)
    consumer = broker.join(max_messages=20)
    assert len(consumer.take()) == 20
    assert consumer.take() == []
    messages = broker.engine.registry.subscription(SUBSCRIPTION).messages
    assert messages.stocked == 80
