"""Messages of the official client are accepted like ours, alone or inside others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from google.cloud.pubsub_v1 import types
from google.iam.v1 import iam_policy_pb2, policy_pb2
from google.protobuf import duration_pb2, field_mask_pb2

from pullstream import SubscriberClient, TopicAdminClient
from pullstream.rpc.request import build_request
from pullstream_emulator import Emulator
from pullstream_protocol.messages import iam_pb2 as iam
from pullstream_protocol.messages import pubsub_pb2 as pubsub

TOPIC = "projects/p/topics/orders"
DEAD = "projects/p/topics/dead"
SUBSCRIPTION = "projects/p/subscriptions/billing"

# The same message in proto-plus and in protobuf form.
POLICY = types.RetryPolicy(minimum_backoff=timedelta(seconds=3))
OIDC = types.PushConfig.OidcToken(audience="me")
FULL = types.Subscription(
    name=SUBSCRIPTION,
    topic=TOPIC,
    retry_policy=POLICY,
    labels={"a": "b"},
    push_config=types.PushConfig(push_endpoint="http://h", oidc_token=OIDC),
)


def raw(message: Any) -> Any:
    return type(message).pb(message)


def plain(**fields: Any) -> pubsub.Subscription:
    return pubsub.Subscription(
        name=SUBSCRIPTION,
        topic=TOPIC,
        retry_policy=pubsub.RetryPolicy(minimum_backoff=duration_pb2.Duration(seconds=3)),
        labels={"a": "b"},
        push_config=pubsub.PushConfig(
            push_endpoint="http://h", oidc_token=pubsub.PushConfig.OidcToken(audience="me")
        ),
        **fields,
    )


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        (FULL, {}),
        (raw(FULL), {}),
        (
            {
                "name": SUBSCRIPTION,
                "topic": TOPIC,
                "labels": FULL.labels,
                "retry_policy": POLICY,
                "push_config": {"push_endpoint": "http://h", "oidc_token": OIDC},
            },
            {},
        ),
        (
            None,
            {
                "name": SUBSCRIPTION,
                "topic": TOPIC,
                "labels": {"a": "b"},
                "retry_policy": raw(POLICY),
                "push_config": FULL.push_config,
            },
        ),
    ],
    ids=["proto-plus", "protobuf", "in a dict", "as a field"],
)
def test_protobuf_messages_of_the_official_client_are_accepted_as_requests(
    request_: Any, fields: dict[str, Any]
) -> None:
    """The form of the argument does not matter."""
    assert build_request(pubsub.Subscription, request_, fields) == plain()


def test_list_fields_of_requests_may_contain_protobuf_messages_of_the_official_client() -> None:
    """Lists may mix them with ours and with dicts."""
    official = types.PubsubMessage(data=b"x", attributes={"a": "b"})
    ours = pubsub.PubsubMessage(data=b"x", attributes={"a": "b"})
    messages = [official, raw(official), ours, {"data": b"x", "attributes": {"a": "b"}}]
    expected = pubsub.PublishRequest(topic="t", messages=[ours] * 4)
    assert (
        build_request(pubsub.PublishRequest, {"topic": "t", "messages": messages}, {}) == expected
    )
    whole = types.PublishRequest(topic="t", messages=[official] * 4)
    assert build_request(pubsub.PublishRequest, whole, {}) == expected
    again = {"topic": "t", "messages": whole.messages}
    assert build_request(pubsub.PublishRequest, again, {}) == expected


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (types.Topic(name="t"), "request must be a Subscription or a dict, got Topic"),
        ({"push_config": types.RetryPolicy()}, "push_config"),
        ({"retry_policy": {"minimum_backoff": types.Topic()}}, "retry_policy.minimum_backoff"),
        (object(), "request must be a Subscription or a dict, got object"),
    ],
)
def test_a_client_method_refuses_an_official_request_message_of_the_wrong_type(
    request_: Any, error: str
) -> None:
    """The error names the field."""
    with pytest.raises(TypeError, match=error):
        build_request(pubsub.Subscription, request_, {})


def test_iam_policies_of_the_official_client_are_accepted_as_request_fields() -> None:
    """Policies are plain protobuf in the official client."""
    policy = policy_pb2.Policy(bindings=[policy_pb2.Binding(role="r", members=["m"])])
    ours = iam.Policy(bindings=[iam.Binding(role="r", members=["m"])])
    expected = iam.SetIamPolicyRequest(resource="x", policy=ours)
    fields = {"resource": "x", "policy": policy}
    assert build_request(iam.SetIamPolicyRequest, None, fields) == expected
    whole = iam_policy_pb2.SetIamPolicyRequest(**fields)
    assert build_request(iam.SetIamPolicyRequest, whole, {}) == expected


@pytest.fixture
def clients() -> Iterator[tuple[TopicAdminClient, SubscriberClient]]:
    with ExitStack() as stack:
        broker = stack.enter_context(Emulator())
        yield (
            stack.enter_context(TopicAdminClient(endpoint=broker.endpoint)),
            stack.enter_context(SubscriberClient(endpoint=broker.endpoint)),
        )


def test_a_program_may_use_the_official_publisher_and_pullstream_with_official_types(
    clients: tuple[TopicAdminClient, SubscriberClient],
) -> None:
    """Publishing code may share its `types` with subscribing code."""
    topics, client = clients
    topics.create_topic(request=types.Topic(name=TOPIC))
    topics.create_topic(name=DEAD)
    client.create_subscription(
        request={
            "name": SUBSCRIPTION,
            "topic": TOPIC,
            "dead_letter_policy": types.DeadLetterPolicy(
                dead_letter_topic=DEAD, max_delivery_attempts=7
            ),
        }
    )
    changed = client.update_subscription(
        subscription=types.Subscription(name=SUBSCRIPTION, ack_deadline_seconds=77),
        update_mask=field_mask_pb2.FieldMask(paths=["ack_deadline_seconds"]),
    )
    assert changed.ack_deadline_seconds == 77
    assert changed.dead_letter_policy.max_delivery_attempts == 7
    message = types.PubsubMessage(data=b"x", ordering_key="k")
    topics.publish(TOPIC, [message])
    client.feeds.append(DEAD, [message])
    (received,) = client.fetch(SUBSCRIPTION)
    assert (received.data, received.ordering_key) == (b"x", "k")
