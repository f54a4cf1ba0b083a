"""The unary methods of the clients: each makes its own call, with the given fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import grpc
import pytest

from pullstream.client import SubscriberClient
from pullstream.exceptions import SubscriberClosed
from pullstream.schemas import SchemaServiceClient
from pullstream.topics import TopicAdminClient
from pullstream_emulator import Emulator
from pullstream_protocol import errors
from pullstream_protocol.messages import iam_pb2 as iam
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.scripted_server import Call, ScriptedServer

PROJECT = "projects/p"
TOPIC = f"{PROJECT}/topics/orders"
SUBSCRIPTION = f"{PROJECT}/subscriptions/billing"
SNAPSHOT = f"{PROJECT}/snapshots/monday"
MASK = {"paths": ["labels"]}
THEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


class Client(SubscriberClient, TopicAdminClient):
    """Both services in one class, so that one table can hold the methods of both."""


@pytest.fixture
def topics(emulator: Emulator) -> Iterator[TopicAdminClient]:
    with TopicAdminClient(endpoint=emulator.endpoint) as client:
        yield client


@pytest.fixture
def subscriptions(emulator: Emulator) -> Iterator[SubscriberClient]:
    with SubscriberClient(endpoint=emulator.endpoint) as client:
        yield client


# ---- against the broker --------------------------------------------------------------------------


def test_admin_create_and_update_methods_accept_every_resource_field_as_a_keyword(
    topics: TopicAdminClient, subscriptions: SubscriberClient
) -> None:
    topic = topics.create_topic(
        name=TOPIC, labels={"team": "a"}, message_retention_duration={"seconds": 600}
    )
    assert (topic.labels["team"], topic.message_retention_duration.seconds) == ("a", 600)
    made = subscriptions.create_subscription(
        name=SUBSCRIPTION,
        topic=TOPIC,
        enable_message_ordering=True,
        filter='attributes.a = "b"',
        dead_letter_policy=pubsub.DeadLetterPolicy(dead_letter_topic=TOPIC),
        timeout=10,
    )
    assert made.enable_message_ordering
    assert made.filter == 'attributes.a = "b"'
    assert made.dead_letter_policy.dead_letter_topic == TOPIC


def test_list_methods_of_the_admin_client_accept_the_page_size_as_a_keyword(
    topics: TopicAdminClient,
) -> None:
    for number in range(3):
        topics.create_topic(name=f"{TOPIC}-{number}")
    pages = list(topics.list_topics(project=PROJECT, page_size=2).pages)
    assert [len(page.topics) for page in pages] == [2, 1]


def test_the_admin_client_refuses_an_unknown_keyword_and_names_the_allowed_keywords(
    subscriptions: SubscriberClient,
) -> None:
    wrong: Any = {"enable_ordering": True}
    with pytest.raises(TypeError, match=r"no keyword enable_ordering; .*enable_message_ordering"):
        subscriptions.create_subscription(name=SUBSCRIPTION, topic=TOPIC, **wrong)
    with pytest.raises(ValueError, match=r"request= and labels"):
        subscriptions.create_subscription({"name": SUBSCRIPTION}, labels={"a": "b"})


def test_the_admin_client_creates_reads_lists_and_deletes_topics(topics: TopicAdminClient) -> None:
    """After the deletion, the topic is not found."""
    topics.create_topic(request={"name": TOPIC, "labels": {"team": "a"}})
    assert topics.get_topic(topic=TOPIC).labels["team"] == "a"
    changed = topics.update_topic(topic={"name": TOPIC, "labels": {"team": "b"}}, update_mask=MASK)
    assert changed.labels["team"] == "b"
    assert [topic.name for topic in topics.list_topics(project=PROJECT)] == [TOPIC]
    topics.delete_topic(topic=TOPIC)
    with pytest.raises(errors.NotFound):
        topics.get_topic(topic=TOPIC)


def test_the_admin_client_creates_reads_lists_and_deletes_subscriptions(
    topics: TopicAdminClient, subscriptions: SubscriberClient
) -> None:
    """After the deletion, the subscription is not found."""
    topics.create_topic(name=TOPIC)
    subscriptions.create_subscription(name=SUBSCRIPTION, topic=TOPIC, ack_deadline_seconds=20)
    assert subscriptions.get_subscription(subscription=SUBSCRIPTION).ack_deadline_seconds == 20
    changed = subscriptions.update_subscription(
        subscription={"name": SUBSCRIPTION, "ack_deadline_seconds": 30},
        update_mask={"paths": ["ack_deadline_seconds"]},
    )
    assert changed.ack_deadline_seconds == 30
    listed = subscriptions.list_subscriptions(project=PROJECT)
    assert [subscription.name for subscription in listed] == [SUBSCRIPTION]
    assert list(topics.list_topic_subscriptions(topic=TOPIC)) == [SUBSCRIPTION]
    subscriptions.delete_subscription(subscription=SUBSCRIPTION)
    with pytest.raises(errors.NotFound):
        subscriptions.get_subscription(subscription=SUBSCRIPTION)


def test_the_admin_client_publishes_pulls_and_acknowledges_messages(
    topics: TopicAdminClient, subscriptions: SubscriberClient, emulator: Emulator
) -> None:
    """Ids are in the order of the messages, and an acknowledged message is gone."""
    topics.create_topic(name=TOPIC)
    subscriptions.create_subscription(name=SUBSCRIPTION, topic=TOPIC)
    message = pubsub.PubsubMessage(data=b"two")
    ids = topics.publish(TOPIC, [{"data": b"one", "attributes": {"a": "1"}}, message])
    pulled = subscriptions.pull(subscription=SUBSCRIPTION, max_messages=10)
    assert [(m.message.message_id, m.message.data) for m in pulled.received_messages] == [
        (ids[0], b"one"),
        (ids[1], b"two"),
    ]
    first, second = (m.ack_id for m in pulled.received_messages)
    subscriptions.acknowledge(subscription=SUBSCRIPTION, ack_ids=[first])
    subscriptions.modify_ack_deadline(
        subscription=SUBSCRIPTION, ack_ids=[second], ack_deadline_seconds=0
    )
    again = subscriptions.pull(subscription=SUBSCRIPTION, max_messages=10)
    assert [m.message.data for m in again.received_messages] == [b"two"]
    assert emulator.backlog(SUBSCRIPTION) == 1


def test_a_refused_call_of_the_admin_client_raises_the_error_class_of_its_grpc_status(
    topics: TopicAdminClient,
) -> None:
    """The error has the server's own text."""
    topics.create_topic(name=TOPIC)
    with pytest.raises(errors.AlreadyExists, match="orders"):
        topics.create_topic(name=TOPIC)
    with pytest.raises(errors.InvalidArgument):
        topics.create_topic(name="orders")
    with pytest.raises(errors.NotFound):
        topics.publish(f"{TOPIC}-2", [{"data": b"x"}])


def test_an_admin_list_call_requests_each_page_when_the_iteration_reaches_the_page(
    topics: TopicAdminClient,
) -> None:
    """The caller's page size is kept, and a second iteration begins with the first page."""
    names = [f"{TOPIC}-{number}" for number in range(5)]
    for name in names:
        topics.create_topic(name=name)
    pager = topics.list_topics(request={"project": PROJECT, "page_size": 2})
    assert [topic.name for topic in pager] == names
    assert [len(page.topics) for page in pager.pages] == [2, 2, 1]


def test_an_admin_list_call_may_begin_at_a_page_token(topics: TopicAdminClient) -> None:
    """The page token comes from an earlier page."""
    for number in range(3):
        topics.create_topic(name=f"{TOPIC}-{number}")
    first = next(topics.list_topics(request={"project": PROJECT, "page_size": 2}).pages)
    rest = topics.list_topics(request={"project": PROJECT, "page_token": first.next_page_token})
    assert [topic.name for topic in rest] == [f"{TOPIC}-2"]


# ---- requests on the wire ------------------------------------------------------------------------

CALLS: list[tuple[str, dict[str, Any], Any]] = [
    ("create_topic", {"name": TOPIC}, pubsub.Topic(name=TOPIC)),
    ("get_topic", {"topic": TOPIC}, pubsub.GetTopicRequest(topic=TOPIC)),
    (
        "update_topic",
        {"topic": {"name": TOPIC}, "update_mask": MASK},
        pubsub.UpdateTopicRequest(topic={"name": TOPIC}, update_mask=MASK),
    ),
    ("list_topics", {"project": PROJECT}, pubsub.ListTopicsRequest(project=PROJECT)),
    (
        "list_topic_subscriptions",
        {"topic": TOPIC},
        pubsub.ListTopicSubscriptionsRequest(topic=TOPIC),
    ),
    ("list_topic_snapshots", {"topic": TOPIC}, pubsub.ListTopicSnapshotsRequest(topic=TOPIC)),
    ("delete_topic", {"topic": TOPIC}, pubsub.DeleteTopicRequest(topic=TOPIC)),
    (
        "detach_subscription",
        {"subscription": SUBSCRIPTION},
        pubsub.DetachSubscriptionRequest(subscription=SUBSCRIPTION),
    ),
    (
        "publish",
        {"topic": TOPIC, "messages": [{"data": b"x"}]},
        pubsub.PublishRequest(topic=TOPIC, messages=[{"data": b"x"}]),
    ),
    (
        "create_subscription",
        {
            "name": SUBSCRIPTION,
            "topic": TOPIC,
            "push_config": {"push_endpoint": "http://e"},
            "ack_deadline_seconds": 20,
        },
        pubsub.Subscription(
            name=SUBSCRIPTION,
            topic=TOPIC,
            push_config={"push_endpoint": "http://e"},
            ack_deadline_seconds=20,
        ),
    ),
    (
        "create_subscription",
        # Some servers use the 0 of a missing field as the deadline.
        {"name": SUBSCRIPTION, "topic": TOPIC},
        pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC, ack_deadline_seconds=10),
    ),
    (
        "get_subscription",
        {"subscription": SUBSCRIPTION},
        pubsub.GetSubscriptionRequest(subscription=SUBSCRIPTION),
    ),
    (
        "update_subscription",
        {"subscription": {"name": SUBSCRIPTION}, "update_mask": MASK},
        pubsub.UpdateSubscriptionRequest(subscription={"name": SUBSCRIPTION}, update_mask=MASK),
    ),
    ("list_subscriptions", {"project": PROJECT}, pubsub.ListSubscriptionsRequest(project=PROJECT)),
    (
        "delete_subscription",
        {"subscription": SUBSCRIPTION},
        pubsub.DeleteSubscriptionRequest(subscription=SUBSCRIPTION),
    ),
    (
        "modify_push_config",
        {"subscription": SUBSCRIPTION, "push_config": {"push_endpoint": "http://e"}},
        pubsub.ModifyPushConfigRequest(
            subscription=SUBSCRIPTION, push_config={"push_endpoint": "http://e"}
        ),
    ),
    (
        "create_snapshot",
        {"name": SNAPSHOT, "subscription": SUBSCRIPTION},
        pubsub.CreateSnapshotRequest(name=SNAPSHOT, subscription=SUBSCRIPTION),
    ),
    ("get_snapshot", {"snapshot": SNAPSHOT}, pubsub.GetSnapshotRequest(snapshot=SNAPSHOT)),
    (
        "update_snapshot",
        {"snapshot": {"name": SNAPSHOT}, "update_mask": MASK},
        pubsub.UpdateSnapshotRequest(snapshot={"name": SNAPSHOT}, update_mask=MASK),
    ),
    ("list_snapshots", {"project": PROJECT}, pubsub.ListSnapshotsRequest(project=PROJECT)),
    ("delete_snapshot", {"snapshot": SNAPSHOT}, pubsub.DeleteSnapshotRequest(snapshot=SNAPSHOT)),
    (
        "seek",
        {"subscription": SUBSCRIPTION, "time": THEN},
        pubsub.SeekRequest(subscription=SUBSCRIPTION, time={"seconds": int(THEN.timestamp())}),
    ),
    (
        "seek",
        {"subscription": SUBSCRIPTION, "snapshot": SNAPSHOT},
        pubsub.SeekRequest(subscription=SUBSCRIPTION, snapshot=SNAPSHOT),
    ),
    (
        "pull",
        {"subscription": SUBSCRIPTION, "max_messages": 3, "return_immediately": True},
        pubsub.PullRequest(subscription=SUBSCRIPTION, max_messages=3, return_immediately=True),
    ),
    (
        "acknowledge",
        {"subscription": SUBSCRIPTION, "ack_ids": ["a", "b"]},
        pubsub.AcknowledgeRequest(subscription=SUBSCRIPTION, ack_ids=["a", "b"]),
    ),
    (
        "modify_ack_deadline",
        {"subscription": SUBSCRIPTION, "ack_ids": ["a"], "ack_deadline_seconds": 0},
        pubsub.ModifyAckDeadlineRequest(subscription=SUBSCRIPTION, ack_ids=["a"]),
    ),
    ("get_iam_policy", {"resource": TOPIC}, iam.GetIamPolicyRequest(resource=TOPIC)),
    (
        "set_iam_policy",
        {"resource": TOPIC, "policy": {"etag": b"1"}},
        iam.SetIamPolicyRequest(resource=TOPIC, policy={"etag": b"1"}),
    ),
    (
        "test_iam_permissions",
        {"resource": TOPIC, "permissions": ["pubsub.topics.get"]},
        iam.TestIamPermissionsRequest(resource=TOPIC, permissions=["pubsub.topics.get"]),
    ),
]


@pytest.mark.parametrize(("name", "keywords", "request_"), CALLS)
def test_calls_of_the_admin_client_send_keywords_metadata_and_timeout_to_the_server(
    name: str, keywords: dict[str, Any], request_: Any
) -> None:
    """Every method makes the call of its name with these fields, metadata and timeout."""

    def answer(call: Call) -> pubsub.PublishResponse | None:
        if call.method != "Publish":
            return None
        return pubsub.PublishResponse(message_ids=[str(n) for n in range(len(request_.messages))])

    with ScriptedServer(answer) as server, Client(endpoint=server.endpoint) as client:
        method: Callable[..., Any] = getattr(client, name)
        method(**keywords, timeout=30, retry=None, metadata=[("x-mine", "1")])
    (call,) = server.calls
    assert call.method == name.title().replace("_", "")
    assert call.request == request_
    assert call.metadata["x-mine"] == "1"
    assert call.time_remaining == pytest.approx(30, abs=5)


@pytest.mark.parametrize(
    ("name", "request_"),
    [(name, request) for name, _, request in CALLS if name != "publish"],
)
def test_calls_of_the_admin_client_send_a_given_request_object_unchanged(
    name: str, request_: Any
) -> None:
    """The request is passed unchanged, positionally or by name."""
    with ScriptedServer() as server, Client(endpoint=server.endpoint) as client:
        getattr(client, name)(request_)
        getattr(client, name)(request=request_)
    assert [call.request for call in server.calls] == [request_, request_]


@pytest.mark.parametrize("name", ["pull", "list_subscriptions"])
def test_the_error_for_an_unknown_request_keyword_names_it_and_the_allowed_keywords(
    subscriptions: SubscriberClient, name: str
) -> None:
    with pytest.raises(TypeError, match=r"no keyword time_out; it has request, .*, timeout"):
        getattr(subscriptions, name)(time_out=3)


def test_an_admin_list_call_yields_earlier_items_before_the_error_of_a_later_page() -> None:
    """The earlier items are not lost, and a read is retried as usual."""

    def answer(call: Call) -> pubsub.ListTopicsResponse:
        if call.request.page_token:
            raise errors.PermissionDenied("no more")
        return pubsub.ListTopicsResponse(topics=[{"name": TOPIC}], next_page_token="2")

    with ScriptedServer(answer) as server, TopicAdminClient(endpoint=server.endpoint) as client:
        topics = iter(client.list_topics(project=PROJECT))
        assert next(topics).name == TOPIC
        with pytest.raises(errors.PermissionDenied, match="no more"):
            next(topics)


def test_a_refused_admin_list_call_raises_the_error_before_the_iteration() -> None:
    """The error does not wait for the iteration."""

    def answer(call: Call) -> None:
        raise errors.PermissionDenied("not yours")

    with (
        ScriptedServer(answer) as server,
        TopicAdminClient(endpoint=server.endpoint) as client,
        pytest.raises(errors.PermissionDenied, match="not yours"),
    ):
        client.list_topics(project=PROJECT)


# ---- closing -------------------------------------------------------------------------------------


def test_calls_of_a_closed_admin_client_raise_subscriber_closed() -> None:
    """The error is the one of `subscribe`, where gRPC would raise a ValueError."""
    client = SubscriberClient(endpoint="localhost:1")
    client.close()
    with pytest.raises(SubscriberClosed, match=r"GetSubscription: .*closed"):
        client.get_subscription(subscription="projects/p/subscriptions/s")


def test_entering_a_closed_admin_client_in_a_with_statement_raises_an_error() -> None:
    """Closing again does nothing, and entering the client again is an error."""
    client = SubscriberClient(endpoint="localhost:1")
    with client as entered:
        assert entered is client
        assert not client.closed
    assert client.closed
    client.close()
    with pytest.raises(RuntimeError, match="closed and cannot be used again"), client:
        pass


def test_the_target_attribute_of_an_admin_client_is_the_server_address_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The address may come from the environment."""
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "localhost:4")
    with SubscriberClient() as client:
        assert client.target == "localhost:4"


def test_an_admin_client_uses_the_channel_passed_by_the_caller_and_does_not_close_it() -> None:
    """The caller closes the channel, and other connection arguments are refused with it."""
    with ScriptedServer() as server, grpc.insecure_channel(server.endpoint) as channel:
        with SubscriberClient(channel=channel) as client:
            assert client.target == ""
            client.delete_snapshot(snapshot=SNAPSHOT)
        client = SubscriberClient(channel=channel)
        client.delete_snapshot(snapshot=SNAPSHOT)
        assert len(server.calls) == 2
        with pytest.raises(ValueError, match="leave out endpoint"):
            SubscriberClient(channel=channel, endpoint="localhost:1")


def test_the_resource_path_functions_build_and_parse_resource_names() -> None:
    """The functions need no client and have the official names.

    An invalid name gives an empty dict.
    """
    assert SubscriberClient.topic_path("p", "orders") == TOPIC
    assert SubscriberClient.subscription_path("p", "billing") == SUBSCRIPTION
    assert SubscriberClient.snapshot_path("p", "monday") == SNAPSHOT
    assert SubscriberClient.common_project_path("p") == PROJECT
    assert SchemaServiceClient.schema_path("p", "s") == "projects/p/schemas/s"
    assert SubscriberClient.parse_topic_path(TOPIC) == {"project": "p", "topic": "orders"}
    assert SubscriberClient.parse_subscription_path(SUBSCRIPTION) == {
        "project": "p",
        "subscription": "billing",
    }
    assert SubscriberClient.parse_snapshot_path(SNAPSHOT) == {"project": "p", "snapshot": "monday"}
    assert SubscriberClient.parse_common_project_path(PROJECT) == {"project": "p"}
    assert SchemaServiceClient.parse_schema_path("projects/p/schemas/s") == {
        "project": "p",
        "schema": "s",
    }
    assert SubscriberClient.parse_topic_path(SUBSCRIPTION) == {}
    assert SubscriberClient.parse_common_project_path("orders") == {}
