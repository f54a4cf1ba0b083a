"""Engine options (byte limit, lenience, schemas, push), early ends of leases, and reset."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from pullstream_emulator.engine import Consumer, Engine
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
)
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import PROJECT, SUBSCRIPTION, TOPIC, Broker, broker_holding, new_engine

SCHEMA = f"{PROJECT}/schemas/shape"
ENDPOINT = "https://example.com/push"


def broker_with(**options: Any) -> Broker:
    clock = ManualClock()
    engine = Engine(wall=clock.now, monotonic=clock.monotonic, **options)
    return Broker(clock, engine=engine)


# ---- byte limit ----------------------------------------------------------------------------------


def test_a_broker_at_its_byte_limit_refuses_a_publish_request_as_a_whole() -> None:
    """Each kept message counts once. An acknowledgement makes room."""
    broker = broker_with(max_bytes=2500)
    broker.engine.create_subscription(
        pubsub.Subscription(name=f"{PROJECT}/subscriptions/other", topic=TOPIC)
    )
    broker.publish("a" * 1000)
    broker.engine.delete_subscription(f"{PROJECT}/subscriptions/other")
    with pytest.raises(ResourceExhausted, match="may keep 2500"):
        broker.publish("b" * 1000, "c" * 1000)
    assert broker.backlog == 1
    broker.acknowledge(*broker.join().take())
    assert broker.publish("b" * 1000, "c" * 1000) == ["2", "3"]


def test_the_kept_bytes_of_the_engine_are_the_size_of_messages_kept_by_subscriptions() -> None:
    """A message that no subscription keeps takes no room."""
    broker = broker_holding("a")
    (got,) = broker.join().take()
    assert broker.engine.kept_bytes == got.size
    broker.engine.delete_subscription(SUBSCRIPTION)
    assert broker.engine.kept_bytes == 0
    broker.publish("nobody hears it")
    assert broker.engine.kept_bytes == 0


# ---- lenience ------------------------------------------------------------------------------------


def test_an_engine_with_lenient_limits_allows_an_ack_deadline_of_one_second() -> None:
    """The minimum is 1 s. By default it is 10 s."""
    config = pubsub.Subscription(
        name=f"{PROJECT}/subscriptions/quick", topic=TOPIC, ack_deadline_seconds=1
    )
    with pytest.raises(InvalidArgument, match="between 10 and 600"):
        Broker().engine.create_subscription(config)
    lenient = broker_with(lenient=True)
    assert lenient.engine.create_subscription(config).ack_deadline_seconds == 1
    config.name += "er"
    config.ack_deadline_seconds = -1
    with pytest.raises(InvalidArgument, match="between 1 and 600"):
        lenient.engine.create_subscription(config)


# ---- schemas -------------------------------------------------------------------------------------


def with_schema(broker: Broker) -> pubsub.Topic:
    topic = pubsub.Topic(name=f"{PROJECT}/topics/shaped")
    topic.schema_settings.schema = SCHEMA
    return broker.engine.create_topic(topic)


def test_messages_are_validated_by_the_schema_before_they_are_published() -> None:
    """Only topics with a schema validate messages. One bad message refuses the whole request."""
    seen: list[tuple[str, int]] = []

    def validate(topic: pubsub.Topic, messages: Sequence[pubsub.PubsubMessage]) -> None:
        seen.append((topic.name, len(messages)))
        if any(message.data == b"bad" for message in messages):
            raise InvalidArgument("Invalid data in message.")

    broker = broker_with(validate=validate)
    topic = with_schema(broker)
    good, bad = pubsub.PubsubMessage(data=b"good"), pubsub.PubsubMessage(data=b"bad")
    broker.publish("bad")
    assert seen == []
    with pytest.raises(InvalidArgument, match="Invalid data"):
        broker.engine.publish(pubsub.PublishRequest(topic=topic.name, messages=[good, bad]))
    assert list(
        broker.engine.publish(pubsub.PublishRequest(topic=topic.name, messages=[good]))
    ) == ["1"]
    assert seen == [(topic.name, 2), (topic.name, 1)]


def test_a_topic_update_checks_schema_settings_only_if_they_change() -> None:
    """A schema that was deleted since does not prevent other changes."""
    known = {SCHEMA}

    def check(settings: pubsub.SchemaSettings) -> None:
        if settings.schema not in known:
            raise NotFound("no such schema")

    broker = broker_with(check_settings=check)
    topic = with_schema(broker)
    known.clear()
    broker.engine.forget_schema(SCHEMA)
    assert broker.engine.get_topic(topic.name).schema_settings.schema == "_deleted-schema_"
    request = pubsub.UpdateTopicRequest(topic=pubsub.Topic(name=topic.name, labels={"a": "b"}))
    request.update_mask.paths.append("labels")
    assert broker.engine.update_topic(request).labels == {"a": "b"}
    request.topic.schema_settings.schema = SCHEMA
    request.update_mask.paths.append("schema_settings")
    with pytest.raises(NotFound):
        broker.engine.update_topic(request)
    topic.name += "2"
    with pytest.raises(NotFound):
        broker.engine.create_topic(topic)


# ---- push ----------------------------------------------------------------------------------------


def modify_push(broker: Broker, endpoint: str) -> None:
    config = pubsub.PushConfig(push_endpoint=endpoint)
    broker.engine.modify_push_config(
        pubsub.ModifyPushConfigRequest(subscription=SUBSCRIPTION, push_config=config)
    )


def join(broker: Broker, *, is_push: bool) -> Consumer:
    consumer = Consumer(ack_deadline=10, wake=lambda: None, is_push=is_push)
    broker.engine.join(SUBSCRIPTION, consumer)
    return consumer


def test_the_engine_notifies_the_pusher_of_every_push_config_change() -> None:
    """The pusher is notified of creation, change and deletion, and not of unchanged settings."""
    told: list[str] = []
    clock = ManualClock()
    broker = Broker(clock, engine=new_engine(clock, on_push=told.append))
    modify_push(broker, "")
    assert (told, list(broker.engine.push_subscriptions())) == ([], [])
    for endpoint in (ENDPOINT, ENDPOINT, f"{ENDPOINT}/2"):
        modify_push(broker, endpoint)
    assert list(broker.engine.push_subscriptions()) == [SUBSCRIPTION]
    assert told == [SUBSCRIPTION] * 2
    modify_push(broker, "")
    assert told == [SUBSCRIPTION] * 3
    modify_push(broker, ENDPOINT)
    broker.engine.delete_subscription(SUBSCRIPTION)
    assert told == [SUBSCRIPTION] * 5


def test_a_push_subscription_refuses_pull_consumers_and_a_pull_subscription_push_consumers(
    broker: Broker,
) -> None:
    """A change of the push config swaps the accepted kind."""
    with pytest.raises(FailedPrecondition):
        join(broker, is_push=True)
    modify_push(broker, ENDPOINT)
    with pytest.raises(FailedPrecondition, match="not supported for this subscription type"):
        join(broker, is_push=False)
    join(broker, is_push=True)


def test_changing_a_pull_subscription_to_push_closes_its_pull_consumers(broker: Broker) -> None:
    """The consumers end as if they had come after the change."""
    consumer = join(broker, is_push=False)
    modify_push(broker, ENDPOINT)
    assert isinstance(consumer.closed, FailedPrecondition)


# ---- leases that end early, and a reset ----------------------------------------------------------


def test_the_method_expire_of_the_engine_ends_leases_before_their_ack_deadline() -> None:
    """The leases end as if their deadline had passed. A test can end some of them or all."""
    broker = broker_holding("a", "b", "c")
    consumer = broker.join(deadline=600)
    a, b, c = consumer.take()
    broker.acknowledge(c)
    assert broker.engine.expire(SUBSCRIPTION, [b.ack_id, c.ack_id, "nonsense"]) == 1
    assert [(g.data, g.failed_before) for g in consumer.take()] == [("b", 1)]
    assert broker.engine.expire(SUBSCRIPTION) == 2
    assert {(g.data, g.failed_before) for g in consumer.take()} == {("a", 1), ("b", 2)}
    assert broker.acknowledge(a) == [a.ack_id]


def test_an_engine_reset_removes_all_resources_messages_and_consumers() -> None:
    """Consumers are removed, names are free again, and nothing is due."""
    broker = broker_holding("a")
    broker.engine.create_snapshot(
        pubsub.CreateSnapshotRequest(name=f"{PROJECT}/snapshots/before", subscription=SUBSCRIPTION)
    )
    consumer = join(broker, is_push=False)
    broker.engine.reset()
    assert isinstance(consumer.closed, NotFound)
    assert (broker.engine.kept_bytes, broker.engine.next_due()) == (0, None)
    assert not broker.engine.list_topics(pubsub.ListTopicsRequest(project=PROJECT)).topics
    assert broker.engine.create_topic(pubsub.Topic(name=TOPIC)).name == TOPIC
    assert broker.publish("b") == ["1"]


def test_the_broker_logs_a_warning_that_names_a_resource_setting_without_effect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The setting is stored and returned. A setting with an effect gives no warning."""
    transform = pubsub.MessageTransform(
        javascript_udf=pubsub.JavaScriptUDF(function_name="f", code="function f(m) { return m; }")
    )
    broker = Broker(retain_acked_messages=True, filter="attributes:a")
    with caplog.at_level(logging.WARNING, "pullstream.emulator"):
        config = pubsub.Subscription(
            name=f"{PROJECT}/subscriptions/table",
            topic=TOPIC,
            bigquery_config=pubsub.BigQueryConfig(table="a.b.c"),
            message_transforms=[transform],
        )
        stored = broker.engine.create_subscription(config)
    assert stored.bigquery_config.table == "a.b.c"
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning == (
        f"{PROJECT}/subscriptions/table: these settings are stored but have no effect: "
        "bigquery_config, message_transforms"
    )
