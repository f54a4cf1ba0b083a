"""Publish requests with an idempotency key, which clients repeat after a lost reply."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.engine.log import Log, Usage
from pullstream_emulator.engine.observer import Observer
from pullstream_emulator.engine.resources.topic import Topic
from pullstream_emulator.engine.timetable import SlicedWork, Timetable
from pullstream_emulator.services import published_requests
from pullstream_emulator.services.published_requests import REMEMBERED_FOR, PublishedRequests
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import BY_METHOD, IDEMPOTENCY_KEY

TOPIC = "projects/p/topics/orders"
OTHER = "projects/p/topics/invoices"


def create(emulator: Emulator, topic: str) -> None:
    emulator.inspect(lambda engine: engine.create_topic(pubsub.Topic(name=topic)))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def emulator(clock: ManualClock) -> Iterator[Emulator]:
    with Emulator(clock=clock) as running:
        create(running, TOPIC)
        create(running, OTHER)
        yield running


def publish(emulator: Emulator, *data: bytes, key: str = "", topic: str = TOPIC) -> list[str]:
    """Publish with one request; return the message IDs."""
    rpc = BY_METHOD["Publish"]
    request = pubsub.PublishRequest(
        topic=topic, messages=[pubsub.PubsubMessage(data=one) for one in data]
    )
    with grpc.insecure_channel(emulator.endpoint) as channel:
        stub: Any = channel.unary_unary(rpc.path)
        metadata = ((IDEMPOTENCY_KEY, key),) if key else ()
        response = stub(request.SerializeToString(), metadata=metadata)
    return list(pubsub.PublishResponse.FromString(response).message_ids)


def test_a_repeated_publish_request_returns_the_first_message_ids_and_publishes_no_message(
    emulator: Emulator,
) -> None:
    """The client whose reply was lost learns the IDs of the messages that it has published."""
    first = publish(emulator, b"a", b"b", key="request-1")
    assert publish(emulator, b"a", b"b", key="request-1") == first
    assert [message.data for message in emulator.messages(TOPIC)] == [b"a", b"b"]


def test_publish_requests_with_a_different_idempotency_key_or_topic_are_not_repetitions(
    emulator: Emulator,
) -> None:
    """Only a request of the same key and the same topic is a repetition."""
    publish(emulator, b"a", key="request-1")
    publish(emulator, b"b", key="request-2")
    publish(emulator, b"c", key="request-1", topic=OTHER)
    publish(emulator, b"d")
    publish(emulator, b"d")
    assert [message.data for message in emulator.messages(TOPIC)] == [b"a", b"b", b"d", b"d"]
    assert [message.data for message in emulator.messages(OTHER)] == [b"c"]


def test_a_refused_publish_request_can_be_sent_again_with_the_same_idempotency_key(
    emulator: Emulator,
) -> None:
    """A request that failed is tried again, also with the same key."""
    missing = "projects/p/topics/later"
    with pytest.raises(grpc.RpcError, match="NOT_FOUND"):
        publish(emulator, b"a", key="request-1", topic=missing)
    create(emulator, missing)
    assert publish(emulator, b"a", key="request-1", topic=missing)
    assert len(emulator.messages(missing)) == 1


def test_a_publish_request_repeated_after_ten_minutes_is_published_again(
    emulator: Emulator, clock: ManualClock
) -> None:
    """The memory is limited in time."""
    publish(emulator, b"a", key="request-1")
    clock.advance(REMEMBERED_FOR - 1)
    publish(emulator, b"a", key="request-1")
    assert len(emulator.messages(TOPIC)) == 1
    clock.advance(1)
    publish(emulator, b"a", key="request-1")
    assert len(emulator.messages(TOPIC)) == 2


@pytest.mark.parametrize("end", ["delete", "reset"])
def test_a_publish_request_repeated_after_its_topic_was_recreated_is_published_again(
    emulator: Emulator, end: str
) -> None:
    """The memory of a topic ends with the topic: the message IDs of its messages are gone."""
    publish(emulator, b"a", key="request-1")
    if end == "delete":
        emulator.inspect(lambda engine: engine.delete_topic(TOPIC))
    else:
        emulator.reset()
    create(emulator, TOPIC)
    for _ in range(2):
        assert publish(emulator, b"a", key="request-1") == ["1"]
    published = emulator.inspect(lambda engine: engine.registry.topics[TOPIC].log.head_seq)
    assert published == 1


def test_the_number_of_remembered_idempotency_keys_of_publish_requests_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The memory is limited in size."""
    monkeypatch.setattr(published_requests, "MAX_REQUESTS", 2)
    requests = PublishedRequests(ManualClock())
    observer = Observer()
    log = Log(TOPIC, Usage(), observer, SlicedWork(Timetable(lambda due: None)))
    topic = Topic(pubsub.Topic(name=TOPIC), log, observer)
    for number in ("1", "2", "3"):
        requests.remember(topic, f"request-{number}", [number])
    assert requests.ids_of(topic, "request-1") is None
    assert requests.ids_of(topic, "request-2") == ["2"]
    assert requests.ids_of(topic, "request-3") == ["3"]
