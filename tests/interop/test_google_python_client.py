"""google-cloud-pubsub for Python against the broker, found by PUBSUB_EMULATOR_HOST."""

from __future__ import annotations

import queue
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.subscriber.exceptions import AcknowledgeStatus
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask

from pullstream_emulator import Emulator
from pullstream_emulator.pytest_plugin import pubsub_emulator as pubsub_emulator
from tests.contract.channel_fixtures import early_answers as early_answers
from tests.interop.google_python import PROJECT, SUBSCRIPTION, TIMEOUT, TOPIC, Clients, Connect
from tests.interop.google_python import clients as clients
from tests.interop.google_python import connect as connect


def test_a_google_client_callback_gets_the_published_message(
    clients: Clients, pubsub_emulator: Emulator
) -> None:
    """The message has its id, attributes and time, and is gone after its acknowledgement."""
    received: queue.Queue[Any] = queue.Queue()

    def callback(message: Any) -> None:
        message.ack_with_response().result(TIMEOUT)
        received.put(message)

    with clients.subscribe(callback):
        (message_id,) = clients.publish(b"data", origin="test")
        message = received.get(timeout=TIMEOUT)
    assert (message.data, message.message_id) == (b"data", message_id)
    assert dict(message.attributes) == {"origin": "test"}
    assert message.publish_time.timestamp() == pytest.approx(
        pubsub_emulator.clock.now(), abs=TIMEOUT
    )
    assert message.delivery_attempt is None
    assert pubsub_emulator.backlog(SUBSCRIPTION) == 0


def test_a_google_client_receives_a_thousand_messages_under_its_flow_control(
    clients: Clients,
) -> None:
    """The messages are published in batches and delivered under the client's flow control."""
    received: queue.Queue[bytes] = queue.Queue()

    def callback(message: Any) -> None:
        received.put(message.data)
        message.ack()

    flow_control = pubsub_v1.types.FlowControl(max_messages=50)
    expected = [b"%d" % i for i in range(1000)]
    with clients.subscribe(callback, flow_control=flow_control):
        clients.publish(*expected)
        got = [received.get(timeout=TIMEOUT) for _ in expected]
    assert sorted(got) == sorted(expected)


def test_a_google_client_receives_the_messages_of_each_ordering_key_in_order(
    connect: Connect,
) -> None:
    """Each key keeps its order, however the client's threads run."""
    clients = connect(enable_message_ordering=True)
    handled: queue.Queue[tuple[str, int]] = queue.Queue()

    def callback(message: Any) -> None:
        handled.put((message.ordering_key, int(message.data)))
        message.ack()

    with clients.subscribe(callback):
        for i in range(50):
            for key in ("a", "b"):
                clients.publish(b"%d" % i, key=key)
        got = [handled.get(timeout=TIMEOUT) for _ in range(100)]
    for key in ("a", "b"):
        assert [number for k, number in got if k == key] == list(range(50))


def test_a_nack_by_a_google_client_redelivers_the_nacked_and_later_messages_of_the_key(
    connect: Connect,
) -> None:
    """The client handles its received messages first, and the broker then delivers them again."""
    clients = connect(enable_message_ordering=True)
    handled: queue.Queue[int] = queue.Queue()
    nacked: list[int] = []

    def callback(message: Any) -> None:
        number = int(message.data)
        if number == 3 and not nacked:
            nacked.append(number)
            message.nack()
        else:
            handled.put(number)
            message.ack()

    clients.publish(*(b"%d" % i for i in range(20)), key="a")
    with clients.subscribe(callback):
        while handled.get(timeout=TIMEOUT) != 3:
            pass
        assert [handled.get(timeout=TIMEOUT) for _ in range(4, 20)] == list(range(4, 20))


def test_a_message_nacked_by_a_google_client_is_redelivered(connect: Connect) -> None:
    """The attempts are counted with a dead-letter policy."""
    policy = {"dead_letter_topic": TOPIC, "max_delivery_attempts": 5}
    clients = connect(dead_letter_policy=policy)
    attempts: queue.Queue[int] = queue.Queue()

    def callback(message: Any) -> None:
        attempts.put(message.delivery_attempt)
        if message.delivery_attempt < 3:
            message.nack()
        else:
            message.ack()

    with clients.subscribe(callback):
        clients.publish(b"data")
        assert [attempts.get(timeout=TIMEOUT) for _ in range(3)] == [1, 2, 3]


def test_a_google_client_can_pull_messages_and_acknowledge_extend_or_nack_them(
    clients: Clients, pubsub_emulator: Emulator
) -> None:
    """Pulled messages are acknowledged, extended and returned by unary calls."""
    clients.publish(b"a", b"b")
    first, second = clients.pull()
    assert [m.message.data for m in (first, second)] == [b"a", b"b"]
    clients.subscriber.acknowledge(subscription=SUBSCRIPTION, ack_ids=[first.ack_id])
    for seconds in (60, 0):
        clients.subscriber.modify_ack_deadline(
            subscription=SUBSCRIPTION, ack_ids=[second.ack_id], ack_deadline_seconds=seconds
        )
    assert [m.message.data for m in clients.pull()] == [b"b"]
    assert pubsub_emulator.backlog(SUBSCRIPTION) == 1


def test_a_pull_by_a_google_client_returns_an_empty_list_if_there_are_no_messages(
    clients: Clients, early_answers: float
) -> None:
    """The answer comes before the client's deadline, so there is no error."""
    response = clients.subscriber.pull(
        subscription=SUBSCRIPTION, max_messages=1, timeout=early_answers + 0.5, retry=None
    )
    assert list(response.received_messages) == []


def test_a_google_client_callback_gets_the_results_of_its_exactly_once_acks(
    connect: Connect,
) -> None:
    """An acknowledgement succeeds, and so does a second one of the same delivery."""
    clients = connect(enable_exactly_once_delivery=True)
    results: queue.Queue[Any] = queue.Queue()

    def callback(message: Any) -> None:
        results.put(message.ack_with_response().result(TIMEOUT))
        results.put(message.ack_with_response().result(TIMEOUT))

    with clients.subscribe(callback):
        clients.publish(b"data")
        assert results.get(timeout=TIMEOUT) is AcknowledgeStatus.SUCCESS
        assert results.get(timeout=TIMEOUT) is AcknowledgeStatus.SUCCESS


def test_a_google_client_can_manage_topics_and_subscriptions(clients: Clients) -> None:
    """The calls create, get, list in pages, update by mask, and delete."""
    publisher, subscriber = clients.publisher, clients.subscriber
    for i in range(4):
        publisher.create_topic(name=f"{TOPIC}-{i}")
    pages = publisher.list_topics(request={"project": PROJECT, "page_size": 2})
    assert [topic.name for topic in pages] == [TOPIC, *(f"{TOPIC}-{i}" for i in range(4))]
    assert list(publisher.list_topic_subscriptions(topic=TOPIC)) == [SUBSCRIPTION]

    created = subscriber.get_subscription(subscription=SUBSCRIPTION)
    assert (created.ack_deadline_seconds, created.state.name) == (10, "ACTIVE")
    assert created.expiration_policy.ttl.days == 31
    subscriber.update_subscription(
        subscription={"name": SUBSCRIPTION, "ack_deadline_seconds": 60, "labels": {"a": "b"}},
        update_mask=FieldMask(paths=["ack_deadline_seconds"]),
    )
    updated = subscriber.get_subscription(subscription=SUBSCRIPTION)
    assert (updated.ack_deadline_seconds, dict(updated.labels)) == (60, {})
    topic = publisher.update_topic(
        topic={"name": TOPIC, "message_retention_duration": Duration(seconds=600)},
        update_mask=FieldMask(paths=["message_retention_duration"]),
    )
    assert topic.message_retention_duration.seconds == 600

    publisher.delete_topic(topic=TOPIC)
    (kept,) = subscriber.list_subscriptions(project=PROJECT)
    assert kept.topic == "_deleted-topic_"
    subscriber.delete_subscription(subscription=SUBSCRIPTION)
    assert list(subscriber.list_subscriptions(project=PROJECT)) == []


def test_broker_errors_are_raised_by_a_google_client_as_its_own_exception_classes(
    clients: Clients,
) -> None:
    """Each code has its exception with the broker's text, without a minute of retries."""
    publisher, subscriber = clients.publisher, clients.subscriber
    with pytest.raises(exceptions.NotFound, match=r"Resource not found \(resource=missing\)\."):
        publisher.get_topic(topic=f"{PROJECT}/topics/missing")
    with pytest.raises(exceptions.AlreadyExists, match="Resource already exists"):
        publisher.create_topic(name=TOPIC)
    with pytest.raises(exceptions.InvalidArgument, match="Invalid resource name given"):
        publisher.create_topic(name=f"{PROJECT}/topics/1")
    with pytest.raises(exceptions.InvalidArgument, match=r"argument=max_messages"):
        subscriber.pull(subscription=SUBSCRIPTION, max_messages=-1)
    with pytest.raises(exceptions.InvalidArgument, match=r"'nonsense' is not a known"):
        subscriber.update_subscription(
            subscription={"name": SUBSCRIPTION}, update_mask=FieldMask(paths=["nonsense"])
        )
    with pytest.raises(exceptions.NotFound):
        publisher.publish(f"{PROJECT}/topics/missing", b"x").result(TIMEOUT)
    with pytest.raises(exceptions.InvalidArgument, match="attribute key"):
        publisher.publish(TOPIC, b"x", google="forbidden").result(TIMEOUT)


def test_deleting_the_subscription_ends_a_google_client_streaming_pull(clients: Clients) -> None:
    """The future of `subscribe` raises NotFound."""
    received: queue.Queue[bytes] = queue.Queue()

    def callback(message: Any) -> None:
        received.put(message.data)
        message.ack()

    with clients.subscribe(callback) as future:
        clients.publish(b"data")
        assert received.get(timeout=TIMEOUT) == b"data"
        clients.subscriber.delete_subscription(subscription=SUBSCRIPTION)
        with pytest.raises(exceptions.NotFound):
            future.result(TIMEOUT)
