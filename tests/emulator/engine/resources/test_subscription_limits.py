"""Subscription settings outside their limits: error code, error text, and no effect."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask

from pullstream_emulator.engine import Engine
from pullstream_protocol.errors import InvalidArgument, NotFound
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION, TOPIC

DEAD = "projects/test/topics/dead"
DAY = 86400


def seconds(number: float) -> Duration:
    return Duration(seconds=int(number), nanos=int(number % 1 * 1e9))


def ttl(number: float) -> pubsub.ExpirationPolicy:
    return pubsub.ExpirationPolicy(ttl=seconds(number))


def dead_letter(attempts: int, topic: str = DEAD) -> pubsub.DeadLetterPolicy:
    return pubsub.DeadLetterPolicy(dead_letter_topic=topic, max_delivery_attempts=attempts)


def retry(low: float, high: float) -> pubsub.RetryPolicy:
    return pubsub.RetryPolicy(minimum_backoff=seconds(low), maximum_backoff=seconds(high))


def ack_deadline_text(given: int) -> str:
    return (
        f"Invalid ack deadline given (ack_deadline={given}). The ack deadline must be between 10 "
        "and 600 seconds."
    )


def retention_text(given: str) -> str:
    return (
        f"The value for message retention duration is out of bounds. You passed {given} in the "
        "request, but the value must be between 10m and 744h."
    )


def backoff_text(name: str, given: str) -> str:
    return (
        f"The value for {name} is out of bounds. You passed {given} in the request, but the value "
        "must be between 0 and 10m."
    )


BAD: list[tuple[dict[str, Any], str]] = [
    *(({"ack_deadline_seconds": n}, ack_deadline_text(n)) for n in (-1, 1, 9, 601)),
    ({"message_retention_duration": seconds(599)}, retention_text("599s")),
    ({"message_retention_duration": seconds(32 * DAY)}, retention_text("768h")),
    (
        {"expiration_policy": ttl(DAY - 1)},
        "The value for expiration duration is too small. You passed 86399s in the request, but the "
        "minimum value is 24h.",
    ),
    (
        {"expiration_policy": ttl(30 * DAY), "message_retention_duration": seconds(31 * DAY)},
        "The subscription's message retention duration (2678400 seconds) cannot be greater than "
        "the TTL in the subscription's expiration policy (2592000 seconds), since messages cannot "
        "be retained past subscription expiration.",
    ),
    (
        {"dead_letter_policy": dead_letter(4)},
        "The value for max_delivery_attempts is too small. You passed 4 in the request, but the "
        "minimum value is 5.",
    ),
    (
        {"dead_letter_policy": dead_letter(101)},
        "The value for max_delivery_attempts is too large. You passed 101 in the request, but the "
        "maximum value is 100.",
    ),
    ({"retry_policy": retry(601, 602)}, backoff_text("minimum_backoff", "601s")),
    ({"retry_policy": retry(-1, 0)}, backoff_text("minimum_backoff", "-1s")),
    ({"retry_policy": retry(1, 660)}, backoff_text("maximum_backoff", "11m")),
    (
        {"retry_policy": retry(60, 10.5)},
        "The specified maximum_backoff 10.5s cannot be smaller than minimum_backoff 1m.",
    ),
    (
        {"filter": "é" * 129},
        "The value for filter is too large. You passed 258 in the request, but the maximum value "
        "is 256.",
    ),
]

GOOD: list[dict[str, Any]] = [
    {"ack_deadline_seconds": 10},
    {"ack_deadline_seconds": 600},
    {"message_retention_duration": seconds(600)},
    {"message_retention_duration": seconds(31 * DAY)},
    {"expiration_policy": ttl(DAY)},
    {"expiration_policy": ttl(7 * DAY), "message_retention_duration": seconds(7 * DAY)},
    {"dead_letter_policy": dead_letter(5)},
    {"dead_letter_policy": dead_letter(100)},
    {"retry_policy": retry(0, 0)},
    {"retry_policy": retry(600, 600)},
    {"filter": f"attributes:{'f' * 245}"},
]


@pytest.fixture
def topics(engine: Engine) -> Engine:
    for name in (TOPIC, DEAD):
        engine.create_topic(pubsub.Topic(name=name))
    return engine


def create(engine: Engine, **fields: Any) -> pubsub.Subscription:
    config = pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC, **fields)
    return engine.create_subscription(config)


@pytest.mark.parametrize(("fields", "text"), BAD)
def test_an_invalid_subscription_setting_creates_no_subscription(
    topics: Engine, fields: dict[str, Any], text: str
) -> None:
    """The text names the field, the value and the limit."""
    with pytest.raises(InvalidArgument) as refused:
        create(topics, **fields)
    assert refused.value.message == text
    request = pubsub.ListSubscriptionsRequest(project="projects/test")
    assert topics.list_subscriptions(request) == pubsub.ListSubscriptionsResponse()


@pytest.mark.parametrize(("fields", "text"), [b for b in BAD if "filter" not in b[0]])
def test_an_update_with_an_invalid_setting_leaves_the_subscription_unchanged(
    topics: Engine, fields: dict[str, Any], text: str
) -> None:
    """The error is the same as for a creation. A good change in the same request is not applied."""
    before = pubsub.Subscription()
    before.CopyFrom(create(topics))
    request = pubsub.UpdateSubscriptionRequest(
        subscription=pubsub.Subscription(name=SUBSCRIPTION, labels={"a": "b"}, **fields),
        update_mask=FieldMask(paths=["labels", *fields]),
    )
    with pytest.raises(InvalidArgument) as refused:
        topics.update_subscription(request)
    assert refused.value.message == text
    assert topics.get_subscription(SUBSCRIPTION) == before


@pytest.mark.parametrize("fields", GOOD)
def test_a_subscription_setting_at_the_allowed_limit_is_accepted(
    topics: Engine, fields: dict[str, Any]
) -> None:
    """The response contains it."""
    made = create(topics, **fields)
    assert {name: getattr(made, name) for name in fields} == fields


@pytest.mark.parametrize("name", ["billing", "projects/test/topics/billing", "projects/p/x/y/z"])
def test_the_error_for_an_invalid_subscription_name_quotes_the_name(
    topics: Engine, name: str
) -> None:
    """The rule holds for creation and for every other call."""
    for call in (
        lambda: topics.create_subscription(pubsub.Subscription(name=name, topic=TOPIC)),
        lambda: topics.get_subscription(name),
        lambda: topics.delete_subscription(name),
        lambda: topics.acknowledge(name, []),
    ):
        with pytest.raises(InvalidArgument) as refused:
            call()
        assert f"Invalid resource name given (name={name})." in refused.value.message


@pytest.mark.parametrize("topic", ["", "orders", SUBSCRIPTION])
def test_the_error_for_a_subscription_with_an_invalid_topic_name_quotes_the_topic_name(
    topics: Engine, topic: str
) -> None:
    """The rule includes the empty text."""
    with pytest.raises(InvalidArgument) as refused:
        topics.create_subscription(pubsub.Subscription(name=SUBSCRIPTION, topic=topic))
    assert f"Invalid resource name given (name={topic})." in refused.value.message


@pytest.mark.parametrize(
    ("topic", "error", "text"),
    [
        ("", InvalidArgument, "Invalid resource name given (name=)."),
        ("dead", InvalidArgument, "Invalid resource name given (name=dead)."),
        ("projects/test/topics/gone", NotFound, "Resource not found (resource=gone)."),
    ],
)
def test_a_subscription_whose_dead_letter_topic_is_missing_is_not_created(
    topics: Engine, topic: str, error: type[InvalidArgument] | type[NotFound], text: str
) -> None:
    """A failed message needs a topic to go to."""
    with pytest.raises(error) as refused:
        create(topics, dead_letter_policy=dead_letter(5, topic))
    assert refused.value.message.startswith(text)
