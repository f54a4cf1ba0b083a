"""Google's Python client over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.pubsub_v1 import types
from google.pubsub_v1.services.publisher import PublisherClient
from google.pubsub_v1.services.publisher.transports import PublisherRestTransport
from google.pubsub_v1.services.schema_service import SchemaServiceClient
from google.pubsub_v1.services.schema_service.transports import SchemaServiceRestTransport
from google.pubsub_v1.services.subscriber import SubscriberClient
from google.pubsub_v1.services.subscriber.transports import SubscriberRestTransport

from pullstream_emulator import Emulator

PROJECT = "projects/test-project"
TOPIC = f"{PROJECT}/topics/orders"
SUBSCRIPTION = f"{PROJECT}/subscriptions/billing"
AVRO = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}'


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator(rest=True) as emulator:
        yield emulator


def client(client_type: Any, transport_type: Any, emulator: Emulator) -> Any:
    """Return a client with the HTTP transport. Its emulator variable supports gRPC only."""
    # google-auth has no type annotations.
    credentials = AnonymousCredentials()  # type: ignore[no-untyped-call]
    transport = transport_type(host=emulator.endpoint, credentials=credentials, url_scheme="http")
    return client_type(transport=transport)


@pytest.fixture
def publisher(emulator: Emulator) -> Iterator[Any]:
    with client(PublisherClient, PublisherRestTransport, emulator) as publisher:
        yield publisher


@pytest.fixture
def subscriber(emulator: Emulator) -> Iterator[Any]:
    with client(SubscriberClient, SubscriberRestTransport, emulator) as subscriber:
        yield subscriber


def test_the_google_rest_client_can_publish_pull_and_acknowledge_messages(
    publisher: Any, subscriber: Any
) -> None:
    """Messages are published, pulled, returned and acknowledged."""
    publisher.create_topic(name=TOPIC)
    subscriber.create_subscription(name=SUBSCRIPTION, topic=TOPIC)
    message = {"data": b"\0hello\xff", "attributes": {"a": "ä"}, "ordering_key": "k"}
    (message_id,) = publisher.publish(topic=TOPIC, messages=[message]).message_ids
    for _ in range(2):
        (received,) = subscriber.pull(subscription=SUBSCRIPTION, max_messages=10).received_messages
        assert received.message.data == message["data"]
        assert received.message.attributes == message["attributes"]
        assert received.message.ordering_key == "k"
        assert received.message.message_id == message_id
        subscriber.modify_ack_deadline(
            subscription=SUBSCRIPTION, ack_ids=[received.ack_id], ack_deadline_seconds=0
        )
    (received,) = subscriber.pull(subscription=SUBSCRIPTION, max_messages=10).received_messages
    subscriber.acknowledge(subscription=SUBSCRIPTION, ack_ids=[received.ack_id])


def test_the_google_rest_client_can_manage_topics_and_subscriptions(
    publisher: Any, subscriber: Any
) -> None:
    """The calls use masks, enums, durations and pages, and errors have the client's classes."""
    topics = [publisher.create_topic(name=f"{PROJECT}/topics/topic-{i}") for i in range(5)]
    assert list(publisher.list_topics(request={"project": PROJECT, "page_size": 2})) == topics
    topic = publisher.update_topic(
        request={
            "topic": {"name": topics[0].name, "labels": {"a": "b"}},
            "update_mask": {"paths": ["labels"]},
        }
    )
    assert topic.labels == {"a": "b"}
    subscription = subscriber.create_subscription(
        request={
            "name": SUBSCRIPTION,
            "topic": topic.name,
            "message_retention_duration": {"seconds": 601},
            "retry_policy": {"minimum_backoff": {"nanos": 500_000_000}},
        }
    )
    assert subscription.state == types.Subscription.State.ACTIVE
    assert subscription.message_retention_duration.total_seconds() == 601
    assert subscription.retry_policy.minimum_backoff.total_seconds() == 0.5
    assert list(publisher.list_topic_subscriptions(topic=topic.name)) == [SUBSCRIPTION]
    publisher.detach_subscription(request={"subscription": SUBSCRIPTION})
    publisher.delete_topic(topic=topic.name)
    with pytest.raises(exceptions.NotFound, match="Resource not found \\(resource=topic-0\\)"):
        publisher.get_topic(topic=topic.name)
    with pytest.raises(exceptions.Conflict):
        publisher.create_topic(name=topics[1].name)


def test_the_google_rest_client_can_seek_a_subscription_to_a_snapshot(
    publisher: Any, subscriber: Any
) -> None:
    """The acknowledged message is redelivered."""
    publisher.create_topic(name=TOPIC)
    subscriber.create_subscription(
        request={"name": SUBSCRIPTION, "topic": TOPIC, "retain_acked_messages": True}
    )
    snapshot = subscriber.create_snapshot(
        name=f"{PROJECT}/snapshots/before", subscription=SUBSCRIPTION
    )
    publisher.publish(topic=TOPIC, messages=[{"data": b"hello"}])
    for _ in range(2):
        (received,) = subscriber.pull(subscription=SUBSCRIPTION, max_messages=1).received_messages
        subscriber.acknowledge(subscription=SUBSCRIPTION, ack_ids=[received.ack_id])
        subscriber.seek(request={"subscription": SUBSCRIPTION, "snapshot": snapshot.name})
    subscriber.delete_snapshot(snapshot=snapshot.name)


def test_the_google_rest_client_can_manage_schemas_and_iam_policies(
    publisher: Any, emulator: Emulator
) -> None:
    """The calls use the schema client and the mixin of every client."""
    avro = {"type_": types.Schema.Type.AVRO, "definition": AVRO}
    with client(SchemaServiceClient, SchemaServiceRestTransport, emulator) as schemas:
        schema = schemas.create_schema(parent=PROJECT, schema=avro, schema_id="order")
        assert schema.definition == AVRO
        assert [s.name for s in schemas.list_schemas(parent=PROJECT)] == [schema.name]
        schemas.validate_schema(parent=PROJECT, schema=avro)
        with pytest.raises(exceptions.BadRequest):
            schemas.validate_message(
                request={
                    "parent": PROJECT,
                    "name": schema.name,
                    "message": b"{}",
                    "encoding": types.Encoding.JSON,
                }
            )
        schemas.delete_schema(name=schema.name)
    publisher.create_topic(name=TOPIC)
    policy = publisher.get_iam_policy(request={"resource": TOPIC})
    policy.bindings.add(role="roles/viewer", members=["user:a@b.c"])
    kept = publisher.set_iam_policy(request={"resource": TOPIC, "policy": policy})
    assert publisher.get_iam_policy(request={"resource": TOPIC}) == kept
    granted = publisher.test_iam_permissions(
        request={"resource": TOPIC, "permissions": ["pubsub.topics.get"]}
    )
    assert granted.permissions == ["pubsub.topics.get"]
