"""Known kinds of hostile requests: the error of each, and the unchanged state."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import PROJECT, SUBSCRIPTION, TOPIC
from tests.emulator.wire import Wire, data_of

INVALID = grpc.StatusCode.INVALID_ARGUMENT


def attributes(count: int = 1, *, key: str = "", value: str = "") -> pubsub.PublishRequest:
    many = {f"{key}{i}": value for i in range(count)}
    messages = [pubsub.PubsubMessage(data=b"x"), pubsub.PubsubMessage(attributes=many)]
    return pubsub.PublishRequest(topic=TOPIC, messages=messages)


def update(path: str) -> pubsub.UpdateSubscriptionRequest:
    mask = FieldMask(paths=["ack_deadline_seconds", path])
    subscription = pubsub.Subscription(name=SUBSCRIPTION, ack_deadline_seconds=60)
    return pubsub.UpdateSubscriptionRequest(subscription=subscription, update_mask=mask)


def seconds(value: int) -> Duration:
    return Duration(seconds=value)


HOSTILE: dict[str, tuple[str, Message, str]] = {
    "a name of a megabyte": (
        "CreateTopic",
        pubsub.Topic(name=f"{PROJECT}/topics/{'x' * 1_000_000}"),
        "Invalid resource name given",
    ),
    "a name that climbs": (
        "GetTopic",
        pubsub.GetTopicRequest(topic=f"{PROJECT}/topics/../../etc/passwd"),
        "Invalid resource name given",
    ),
    "a name with a NUL": (
        "CreateTopic",
        pubsub.Topic(name=f"{PROJECT}/topics/orders\0"),
        "Invalid resource name given",
    ),
    "a hundred and one attributes": ("Publish", attributes(101), "attribute"),
    "an attribute key of a megabyte": ("Publish", attributes(key="x" * 1_000_000), "attribute"),
    "an attribute of a megabyte": ("Publish", attributes(value="x" * 1_000_000), "attribute"),
    "a negative page size": (
        "ListTopics",
        pubsub.ListTopicsRequest(project=PROJECT, page_size=-1),
        "page_size",
    ),
    "a page token of a megabyte": (
        "ListTopics",
        pubsub.ListTopicsRequest(project=PROJECT, page_token="x" * 1_000_000),
        "page_token",
    ),
    "a pull of fewer than no messages": (
        "Pull",
        pubsub.PullRequest(subscription=SUBSCRIPTION, max_messages=-(2**31)),
        "max_messages",
    ),
    "a deadline before now": (
        "ModifyAckDeadline",
        pubsub.ModifyAckDeadlineRequest(
            subscription=SUBSCRIPTION, ack_ids=["x"], ack_deadline_seconds=-1
        ),
        "between 0 and 600",
    ),
    "a retention of less than nothing": (
        "CreateSubscription",
        pubsub.Subscription(
            name=f"{SUBSCRIPTION}-2", topic=TOPIC, message_retention_duration=seconds(-1)
        ),
        "message retention duration",
    ),
    "a retention of no duration": (
        "CreateSubscription",
        pubsub.Subscription(
            name=f"{SUBSCRIPTION}-2", topic=TOPIC, message_retention_duration=seconds(2**62)
        ),
        "message retention duration",
    ),
    "a backoff of less than nothing": (
        "CreateSubscription",
        pubsub.Subscription(
            name=f"{SUBSCRIPTION}-2",
            topic=TOPIC,
            retry_policy=pubsub.RetryPolicy(minimum_backoff=seconds(-1)),
        ),
        "minimum_backoff",
    ),
    "a filter of a kilobyte": (
        "CreateSubscription",
        pubsub.Subscription(name=f"{SUBSCRIPTION}-2", topic=TOPIC, filter="(" * 1000),
        "filter",
    ),
    "a filter that is nested to its limit": (
        "CreateSubscription",
        pubsub.Subscription(name=f"{SUBSCRIPTION}-2", topic=TOPIC, filter="(" * 256),
        "filter",
    ),
    "a seek to no time": (
        "Seek",
        pubsub.SeekRequest(subscription=SUBSCRIPTION, time=Timestamp(seconds=2**62)),
        "time",
    ),
    "a mask with an unknown field": ("UpdateSubscription", update("nonsense"), "'nonsense'"),
    "a mask in the spelling of JSON": ("UpdateSubscription", update("pushConfig"), "'pushConfig'"),
    "a mask with what cannot be changed": ("UpdateSubscription", update("topic"), "not mutable"),
    "a mask with an empty path": ("UpdateSubscription", update(""), "not a known"),
    "a mask with all": ("UpdateSubscription", update("*"), "not a known"),
    "no mask": (
        "UpdateSubscription",
        pubsub.UpdateSubscriptionRequest(subscription=pubsub.Subscription(name=SUBSCRIPTION)),
        "update_mask",
    ),
}


@pytest.fixture
def prepared(wire: Wire) -> Wire:
    wire.create()
    wire.publish("data")
    return wire


@pytest.mark.parametrize(("method", "request_", "text"), HOSTILE.values(), ids=HOSTILE)
def test_the_error_says_what_is_wrong(
    prepared: Wire, method: str, request_: Message, text: str
) -> None:
    """The text is short, and the code is one that no client retries. The state is unchanged."""
    before = state(prepared)
    refused = prepared.start(method, request_).exception()
    assert refused is not None
    assert refused.code() is INVALID, refused.details()
    assert text in refused.details()
    assert len(refused.details()) < 1000
    assert state(prepared) == before
    assert data_of(prepared.pull()) == ["data"]


def state(wire: Wire) -> list[Message]:
    return [
        wire.call("ListTopics", pubsub.ListTopicsRequest(project=PROJECT)),
        wire.call("ListSubscriptions", pubsub.ListSubscriptionsRequest(project=PROJECT)),
    ]


def test_text_that_is_no_utf8_is_refused(prepared: Wire) -> None:
    """Such a request cannot be parsed, whichever field has the text."""
    good = pubsub.GetTopicRequest(topic=TOPIC).SerializeToString()
    call = prepared.raw("GetTopic").future(good.replace(b"orders", b"\xff\xfeders"), timeout=20)
    refused = call.exception()
    assert refused.code() is INVALID
    assert "not a valid GetTopicRequest" in refused.details()


def test_a_page_may_be_asked_to_be_enormous(prepared: Wire) -> None:
    """The page has all existing items."""
    request = pubsub.ListTopicsRequest(project=PROJECT, page_size=2**31 - 1)
    assert [each.name for each in prepared.call("ListTopics", request).topics] == [TOPIC]


def test_a_pull_may_ask_for_any_number(prepared: Wire) -> None:
    """It receives the available messages."""
    assert data_of(prepared.pull(2**31 - 1)) == ["data"]
