"""Subscriptions: create, get, update, delete, and their settings."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask

from pullstream_emulator.engine import Engine
from pullstream_protocol.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION, TOPIC, Broker, broker_holding

DEAD = "projects/test/topics/dead"


def with_topic(engine: Engine) -> Engine:
    engine.create_topic(pubsub.Topic(name=TOPIC))
    return engine


def create(engine: Engine, **fields: Any) -> pubsub.Subscription:
    return engine.create_subscription(
        pubsub.Subscription(**{"name": SUBSCRIPTION, "topic": TOPIC, **fields})
    )


def update(engine: Engine, *paths: str, **fields: Any) -> pubsub.Subscription:
    request = pubsub.UpdateSubscriptionRequest(
        subscription=pubsub.Subscription(name=SUBSCRIPTION, **fields),
        update_mask=FieldMask(paths=paths),
    )
    return engine.update_subscription(request)


def defaults() -> pubsub.Subscription:
    return pubsub.Subscription(
        name=SUBSCRIPTION,
        topic=TOPIC,
        push_config=pubsub.PushConfig(),
        ack_deadline_seconds=10,
        message_retention_duration=Duration(seconds=7 * 86400),
        expiration_policy=pubsub.ExpirationPolicy(ttl=Duration(seconds=31 * 86400)),
        state=pubsub.Subscription.ACTIVE,
    )


def test_a_subscription_created_without_settings_gets_the_default_settings(engine: Engine) -> None:
    """Production has the same defaults; the official emulator omits the ttl."""
    assert create(with_topic(engine)) == defaults()
    assert engine.get_subscription(SUBSCRIPTION) == defaults()


def test_incomplete_policies_of_a_new_subscription_are_completed_with_defaults(
    engine: Engine,
) -> None:
    """Retention is not longer than the ttl. Each policy gets defaults for its missing fields."""
    with_topic(engine)
    engine.create_topic(pubsub.Topic(name=DEAD))
    made = create(
        engine,
        expiration_policy=pubsub.ExpirationPolicy(ttl=Duration(seconds=2 * 86400)),
        dead_letter_policy=pubsub.DeadLetterPolicy(dead_letter_topic=DEAD),
        retry_policy=pubsub.RetryPolicy(),
    )
    assert made.message_retention_duration.seconds == 2 * 86400
    assert made.dead_letter_policy.max_delivery_attempts == 5
    assert made.retry_policy.minimum_backoff.seconds == 10
    assert made.retry_policy.maximum_backoff.seconds == 600


def test_a_subscription_with_an_empty_expiration_policy_never_expires(engine: Engine) -> None:
    """Without a ttl the subscription never expires, and the longest retention is allowed."""
    made = create(
        with_topic(engine),
        expiration_policy=pubsub.ExpirationPolicy(),
        message_retention_duration=Duration(seconds=31 * 86400),
    )
    assert made.HasField("expiration_policy")
    assert not made.expiration_policy.HasField("ttl")


def test_a_subscription_without_a_name_gets_a_generated_name(engine: Engine) -> None:
    """The name is new each time, and in the topic's project."""
    with_topic(engine)
    names = {create(engine, name="").name for _ in range(2)}
    assert len(names) == 2
    assert all(name.startswith("projects/test/subscriptions/") for name in names)


def test_a_subscription_shows_the_retention_of_its_topic(engine: Engine) -> None:
    """The field follows the topic, and callers cannot set it."""
    engine.create_topic(pubsub.Topic(name=TOPIC, message_retention_duration=Duration(seconds=600)))
    made = create(engine, topic_message_retention_duration=Duration(seconds=1))
    assert made.topic_message_retention_duration.seconds == 600

    without = pubsub.Topic(name=TOPIC)
    mask = FieldMask(paths=["message_retention_duration"])
    engine.update_topic(pubsub.UpdateTopicRequest(topic=without, update_mask=mask))
    shown = engine.get_subscription(SUBSCRIPTION)
    assert not shown.HasField("topic_message_retention_duration")


def test_a_new_subscription_receives_only_messages_published_after_its_creation() -> None:
    """Earlier messages of the topic are not delivered to it."""
    broker = broker_holding("early")
    later = "projects/test/subscriptions/later"
    broker.engine.create_subscription(pubsub.Subscription(name=later, topic=TOPIC))
    broker.publish("late")
    assert (broker.backlog, broker.engine.backlog(later)) == (2, 1)


def test_creating_a_subscription_with_an_existing_name_is_refused(engine: Engine) -> None:
    """The second creation is refused and does not change the first."""
    create(with_topic(engine))
    with pytest.raises(AlreadyExists) as refused:
        create(engine, ack_deadline_seconds=60)
    assert refused.value.message == "Resource already exists in the project (resource=billing)."
    assert engine.get_subscription(SUBSCRIPTION) == defaults()


def test_creating_a_subscription_of_a_missing_topic_is_refused(engine: Engine) -> None:
    """The error quotes the topic."""
    with pytest.raises(NotFound) as refused:
        create(engine)
    assert refused.value.message == "Resource not found (resource=orders)."
    with pytest.raises(NotFound):
        engine.get_subscription(SUBSCRIPTION)


def test_calls_for_a_missing_subscription_end_with_not_found(engine: Engine) -> None:
    """The error quotes the short ID, as in the production service."""
    for call in (
        lambda: engine.get_subscription(SUBSCRIPTION),
        lambda: engine.delete_subscription(SUBSCRIPTION),
        lambda: update(engine, "labels"),
        lambda: engine.modify_push_config(
            pubsub.ModifyPushConfigRequest(subscription=SUBSCRIPTION)
        ),
        lambda: engine.acknowledge(SUBSCRIPTION, ["1-x"]),
        lambda: engine.modify_ack_deadline(SUBSCRIPTION, ["1-x"], 10),
        lambda: engine.backlog(SUBSCRIPTION),
    ):
        with pytest.raises(NotFound) as refused:
            call()
        assert refused.value.message == "Resource not found (resource=billing)."


def test_a_subscription_update_changes_only_the_fields_in_its_mask(engine: Engine) -> None:
    """Named fields are replaced, or reset to their defaults if unset. The others stay."""
    create(
        with_topic(engine),
        ack_deadline_seconds=60,
        labels={"old": "label"},
        message_retention_duration=Duration(seconds=600),
        expiration_policy=pubsub.ExpirationPolicy(),
        enable_message_ordering=True,
    )
    changed = update(
        engine,
        "labels",
        "expiration_policy",
        "ack_deadline_seconds",
        "enable_exactly_once_delivery",
        labels={"new": "label"},
        enable_exactly_once_delivery=True,
        message_retention_duration=Duration(seconds=1200),
    )
    expected = defaults()
    expected.labels["new"] = "label"
    expected.message_retention_duration.seconds = 600
    expected.enable_exactly_once_delivery = True
    expected.enable_message_ordering = True
    assert changed == expected
    assert engine.get_subscription(SUBSCRIPTION) == expected


def test_a_subscription_update_with_an_empty_dead_letter_policy_removes_the_policy(
    engine: Engine,
) -> None:
    """A dead-letter policy has no default."""
    with_topic(engine)
    engine.create_topic(pubsub.Topic(name=DEAD))
    create(engine, dead_letter_policy=pubsub.DeadLetterPolicy(dead_letter_topic=DEAD))
    assert update(engine, "dead_letter_policy") == defaults()


@pytest.mark.parametrize(
    ("path", "policy"),
    [
        ("dead_letter_policy", {"max_delivery_attempts": 6}),
        ("dead_letter_policy", {}),
        ("dead_letter_policy.max_delivery_attempts", {"max_delivery_attempts": 6}),
        ("dead_letter_policy.dead_letter_topic", {}),
    ],
)
def test_updating_a_subscription_to_a_missing_dead_letter_topic_is_refused(
    engine: Engine, path: str, policy: dict[str, Any]
) -> None:
    before = create(with_topic(engine))
    with pytest.raises(InvalidArgument) as creation:
        engine.create_subscription(
            pubsub.Subscription(name=f"{SUBSCRIPTION}-2", topic=TOPIC, dead_letter_policy=policy)
        )
    with pytest.raises(InvalidArgument) as refused:
        update(engine, path, dead_letter_policy=policy)
    assert refused.value.message == creation.value.message
    assert engine.get_subscription(SUBSCRIPTION) == before


def test_a_subscription_update_that_removes_only_the_dead_letter_topic_is_refused(
    engine: Engine,
) -> None:
    with_topic(engine).create_topic(pubsub.Topic(name=DEAD))
    create(engine, dead_letter_policy=pubsub.DeadLetterPolicy(dead_letter_topic=DEAD))
    with pytest.raises(InvalidArgument):
        update(engine, "dead_letter_policy.dead_letter_topic", dead_letter_policy={})


def test_a_subscription_whose_dead_letter_topic_is_deleted_can_be_updated(engine: Engine) -> None:
    """The topic is checked only when a request names it."""
    with_topic(engine)
    engine.create_topic(pubsub.Topic(name=DEAD))
    create(engine, dead_letter_policy=pubsub.DeadLetterPolicy(dead_letter_topic=DEAD))
    engine.delete_topic(DEAD)
    assert (
        update(engine, "ack_deadline_seconds", ack_deadline_seconds=60).ack_deadline_seconds == 60
    )
    missing = pubsub.DeadLetterPolicy(dead_letter_topic="projects/test/topics/missing")
    with pytest.raises(NotFound, match="resource=missing"):
        update(engine, "dead_letter_policy", dead_letter_policy=missing)


MASK = "Invalid update_mask provided in the UpdateSubscriptionRequest: "


@pytest.mark.parametrize(
    ("paths", "text"),
    [
        (
            [],
            "The update_mask in the UpdateSubscriptionRequest must be set, and must contain a "
            "non-empty paths list.",
        ),
        *(
            (
                ["labels", path],
                f"{MASK}'{path}' is not a known Subscription field. Note that field paths must be "
                "of the form 'push_config' rather than 'pushConfig'.",
            )
            for path in ("ackDeadlineSeconds", "nonsense", "expiration_policy.nonsense")
        ),
        *(
            (
                ["labels", path],
                f"{MASK}the '{path}' field in the Subscription is not mutable.",
            )
            for path in ("name", "topic", "filter", "enable_message_ordering", "detached", "state")
        ),
    ],
)
def test_an_update_with_an_invalid_mask_leaves_the_subscription_unchanged(
    engine: Engine, paths: list[str], text: str
) -> None:
    """One bad path refuses the whole update with its good paths."""
    create(with_topic(engine))
    with pytest.raises(InvalidArgument) as refused:
        update(engine, *paths, labels={"new": "label"})
    assert refused.value.message == text
    assert engine.get_subscription(SUBSCRIPTION) == defaults()


def test_deleting_a_topic_keeps_its_subscriptions() -> None:
    """The backlog stays. A new topic with the name does not belong to them."""
    broker = broker_holding("kept")
    broker.engine.delete_topic(TOPIC)
    assert broker.engine.get_subscription(SUBSCRIPTION).topic == "_deleted-topic_"

    broker.engine.create_topic(pubsub.Topic(name=TOPIC))
    broker.publish("for others")
    assert broker.join().take_data() == ["kept"]
    request = pubsub.ListTopicSubscriptionsRequest(topic=TOPIC)
    assert broker.engine.list_topic_subscriptions(request).subscriptions == []
    broker.engine.delete_subscription(SUBSCRIPTION)


def test_a_subscription_created_again_with_the_same_name_starts_empty() -> None:
    """Backlog and leases are deleted with the old one. Its ack IDs are stale, not errors."""
    broker = broker_holding("old", "older")
    held = broker.join().take(1)
    broker.engine.delete_subscription(SUBSCRIPTION)
    create(broker.engine)
    broker.publish("new")
    assert broker.acknowledge(*held) == [held[0].ack_id]
    assert broker.join().take_data() == ["new"]


def test_deleting_a_subscription_closes_its_consumers_with_not_found(broker: Broker) -> None:
    """A consumer is woken and gets the error."""
    consumer = broker.join()
    assert consumer.take() == []
    broker.engine.delete_subscription(SUBSCRIPTION)
    assert consumer.wakes == 1
    assert isinstance(consumer.consumer.closed, NotFound)


@pytest.mark.parametrize(
    "fields",
    [
        {"push_config": pubsub.PushConfig(push_endpoint="https://example.com/push")},
        {"bigquery_config": pubsub.BigQueryConfig(table="p.d.t")},
        {"cloud_storage_config": pubsub.CloudStorageConfig(bucket="bucket")},
    ],
)
def test_a_pull_from_a_push_subscription_is_refused(fields: dict[str, Any]) -> None:
    """An empty push config makes the subscription a pull subscription."""
    broker = Broker(**fields)
    with pytest.raises(FailedPrecondition) as refused:
        broker.join()
    assert refused.value.message == ("This method is not supported for this subscription type.")
    if "push_config" in fields:
        request = pubsub.ModifyPushConfigRequest(subscription=SUBSCRIPTION)
        broker.engine.modify_push_config(request)
        assert broker.join().take() == []
