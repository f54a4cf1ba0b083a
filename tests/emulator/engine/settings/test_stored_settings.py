"""Settings that the broker stores without effect: exports, ingestion and message transforms."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from pullstream_emulator.engine import Engine
from pullstream_protocol.errors import InvalidArgument
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION, TOPIC, update_request

PUSH = {"push_endpoint": "http://127.0.0.1:1/push"}
BIGQUERY = {"table": "project.dataset.table"}
BIGTABLE = {"table": "projects/p/instances/i/tables/t"}
STORAGE = {"bucket": "orders-2026"}
FUNCTION = {"function_name": "keep", "code": "function keep(message) { return message; }"}

KINESIS = {
    "stream_arn": "arn:aws:kinesis:us-east-1:1:stream/s",
    "consumer_arn": "arn:aws:kinesis:us-east-1:1:stream/s/consumer/c:1",
    "aws_role_arn": "arn:aws:iam::1:role/r",
    "gcp_service_account": "a@p.iam.gserviceaccount.com",
}
MSK = {
    "cluster_arn": "arn:aws:kafka:us-east-1:1:cluster/c/1",
    "topic": "orders",
    "aws_role_arn": "arn:aws:iam::1:role/r",
    "gcp_service_account": "a@p.iam.gserviceaccount.com",
}
CONFLUENT = {
    "bootstrap_server": "host:9092",
    "cluster_id": "lkc-1",
    "topic": "orders",
    "identity_pool_id": "pool-1",
    "gcp_service_account": "a@p.iam.gserviceaccount.com",
}
AZURE = {"namespace": "n", "event_hub": "e"}


def without(fields: dict[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in fields.items() if key != name}


def create(engine: Engine, **fields: Any) -> pubsub.Subscription:
    engine.create_topic(pubsub.Topic(name=TOPIC))
    return engine.create_subscription(pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC, **fields))


def create_topic(engine: Engine, **fields: Any) -> pubsub.Topic:
    return engine.create_topic(pubsub.Topic(name=TOPIC, **fields))


def ingestion(**source: Any) -> pubsub.IngestionDataSourceSettings:
    return pubsub.IngestionDataSourceSettings(**source)


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"push_config": PUSH, "bigquery_config": BIGQUERY},
        "push_config, bigquery_config: a subscription has at most one delivery type",
    ),
    (
        {"bigquery_config": BIGQUERY, "cloud_storage_config": STORAGE},
        "bigquery_config, cloud_storage_config: a subscription has at most one delivery type",
    ),
    (
        {"bigtable_config": BIGTABLE, "cloud_storage_config": STORAGE},
        "bigtable_config, cloud_storage_config: a subscription has at most one delivery type",
    ),
    ({"bigquery_config": {}}, "bigquery_config.table: must be set"),
    (
        {"bigquery_config": {"table": "dataset.table"}},
        "bigquery_config.table: 'dataset.table' must have the form 'project.dataset.table'",
    ),
    (
        {"bigquery_config": {**BIGQUERY, "use_topic_schema": True, "use_table_schema": True}},
        "use_topic_schema and use_table_schema cannot both be true",
    ),
    ({"bigtable_config": {}}, "bigtable_config.table: must be set"),
    ({"bigtable_config": {"table": "t"}}, "'projects/PROJECT/instances/INSTANCE/tables/TABLE'"),
    ({"cloud_storage_config": {}}, "cloud_storage_config.bucket: '' must be the name of a bucket"),
    ({"cloud_storage_config": {"bucket": "gs://orders"}}, "without 'gs://'"),
    (
        {"cloud_storage_config": {**STORAGE, "max_duration": {"seconds": 1}}},
        "cloud_storage_config.max_duration: '1s' must be from 1m to 10m",
    ),
    (
        {"cloud_storage_config": {**STORAGE, "max_duration": {"seconds": 601}}},
        "cloud_storage_config.max_duration: '601s' must be from 1m to 10m",
    ),
    (
        {"cloud_storage_config": {**STORAGE, "max_bytes": 999}},
        "cloud_storage_config.max_bytes: '999' must be from 1000 to 10737418240",
    ),
    (
        {"cloud_storage_config": {**STORAGE, "max_messages": 999}},
        "cloud_storage_config.max_messages: '999' must be at least 1000",
    ),
    ({"message_transforms": [{}]}, r"message_transforms\[0\]: needs one of javascript_udf"),
    (
        {"message_transforms": [{"javascript_udf": {"code": "x"}}]},
        r"message_transforms\[0\].javascript_udf.function_name: must be set",
    ),
    (
        {"message_transforms": [{"javascript_udf": {**FUNCTION, "function_name": "other"}}]},
        "'other' must be the name of a function in the code",
    ),
    (
        {"message_transforms": [{"javascript_udf": FUNCTION}, {"javascript_udf": FUNCTION}]},
        r"message_transforms\[1\].javascript_udf.function_name: 'keep' must be unique",
    ),
    (
        {"message_transforms": [{"javascript_udf": {**FUNCTION, "code": "keep" + " " * 20480}}]},
        "javascript_udf.code is too large. You passed 20484",
    ),
    (
        {"message_transforms": [{"compression": {"compression_mode": 1}}]},
        "compression.compression_algorithm: must be set",
    ),
    ({"message_transforms": [{"ai_inference": {}}]}, "ai_inference.endpoint: '' must have the"),
]


@pytest.mark.parametrize(("fields", "problem"), REFUSED)
def test_creating_a_subscription_with_an_invalid_export_or_transform_is_refused(
    engine: Engine, fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        create(engine, **fields)
    request = pubsub.ListTopicSubscriptionsRequest(topic=TOPIC)
    assert list(engine.list_topic_subscriptions(request).subscriptions) == []


@pytest.mark.parametrize(("fields", "problem"), REFUSED)
def test_updating_a_subscription_to_an_invalid_export_or_transform_is_refused(
    engine: Engine, fields: dict[str, Any], problem: str
) -> None:
    before = create(engine)
    with pytest.raises(InvalidArgument, match=problem):
        engine.update_subscription(update_request(**fields))
    assert engine.get_subscription(SUBSCRIPTION) == before


def test_adding_an_export_to_a_push_subscription_is_refused(engine: Engine) -> None:
    create(engine, push_config=PUSH)
    with pytest.raises(InvalidArgument, match="push_config, bigquery_config"):
        engine.update_subscription(update_request(bigquery_config=BIGQUERY))
    replacement = update_request("push_config", bigquery_config=BIGQUERY)
    assert engine.update_subscription(replacement).HasField("bigquery_config")


def test_adding_a_push_endpoint_to_an_export_subscription_is_refused(engine: Engine) -> None:
    create(engine, bigquery_config=BIGQUERY)
    request = pubsub.ModifyPushConfigRequest(subscription=SUBSCRIPTION, push_config=PUSH)
    with pytest.raises(InvalidArgument, match="push_config, bigquery_config"):
        engine.modify_push_config(request)


@pytest.mark.parametrize(
    "fields",
    [
        {"bigquery_config": {**BIGQUERY, "use_topic_schema": True}},
        {"bigquery_config": {"table": "example.com:project.dataset.table$20260101"}},
        {"bigquery_config": {"table": "project:dataset.table"}},
        {"bigtable_config": BIGTABLE},
        {
            "cloud_storage_config": {
                **STORAGE,
                "max_duration": {"seconds": 60},
                "max_bytes": 1000,
                "max_messages": 1000,
            }
        },
        {"message_transforms": [{"javascript_udf": FUNCTION, "disabled": True}]},
        {
            "message_transforms": [
                {"compression": {"compression_algorithm": 1, "compression_mode": 2}},
                {"ai_inference": {"endpoint": "projects/p/locations/l/endpoints/e"}},
            ]
        },
    ],
)
def test_a_subscription_stores_complete_export_and_transform_settings(
    engine: Engine, fields: dict[str, Any]
) -> None:
    (name,) = fields
    sent = pubsub.Subscription(**fields)
    stored = create(engine, **fields)
    if name.endswith("_config"):
        config = getattr(stored, name)
        assert config.state == config.ACTIVE
        config.ClearField("state")
    assert getattr(stored, name) == getattr(sent, name)


def test_output_only_fields_in_a_create_subscription_request_are_ignored(engine: Engine) -> None:
    made = create(
        engine,
        state=pubsub.Subscription.RESOURCE_ERROR,
        bigquery_config={**BIGQUERY, "state": 2},
        analytics_hub_subscription_info={"listing": "l"},
        topic_message_retention_duration={"seconds": 600},
        detached=True,
    )
    assert made.state == pubsub.Subscription.ACTIVE
    assert made.bigquery_config.state == pubsub.BigQueryConfig.ACTIVE
    assert not made.HasField("analytics_hub_subscription_info")
    assert not made.HasField("topic_message_retention_duration")
    assert not made.detached


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ({}, "ingestion_data_source_settings: needs one of aws_kinesis, cloud_storage"),
        ({"cloud_storage": {}}, "cloud_storage.bucket: must be set"),
        ({"cloud_storage": {"bucket": "gs://a"}}, "without 'gs://'"),
        (
            {"cloud_storage": {**STORAGE, "text_format": {"delimiter": "ab"}}},
            "text_format.delimiter: 'ab' must be one character",
        ),
        *[
            ({source: without(fields, name)}, f"{source}.{name}: must be set")
            for source, fields in (
                ("aws_kinesis", KINESIS),
                ("aws_msk", MSK),
                ("confluent_cloud", CONFLUENT),
                ("azure_event_hubs", AZURE),
            )
            for name in fields
        ],
    ],
)
def test_a_topic_with_incomplete_ingestion_settings_is_refused(
    engine: Engine, source: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        create_topic(engine, ingestion_data_source_settings=ingestion(**source))
    before = create_topic(engine)
    request = pubsub.UpdateTopicRequest(
        topic=pubsub.Topic(name=TOPIC, ingestion_data_source_settings=ingestion(**source)),
        update_mask=FieldMask(paths=["ingestion_data_source_settings"]),
    )
    with pytest.raises(InvalidArgument, match=problem):
        engine.update_topic(request)
    assert engine.get_topic(TOPIC) == before


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("aws_kinesis", KINESIS),
        ("aws_msk", MSK),
        ("confluent_cloud", CONFLUENT),
        ("azure_event_hubs", AZURE),
        ("cloud_storage", {**STORAGE, "text_format": {"delimiter": ";"}}),
    ],
)
def test_a_topic_with_complete_ingestion_settings_has_the_state_active(
    engine: Engine, name: str, fields: dict[str, Any]
) -> None:
    """The state in the request, an output-only field, is ignored."""
    source = {**fields, "state": 3}
    made = create_topic(engine, ingestion_data_source_settings={name: source}, satisfies_pzs=True)
    assert made.state == pubsub.Topic.ACTIVE
    assert not made.satisfies_pzs
    stored = getattr(made.ingestion_data_source_settings, name)
    assert stored.state == stored.ACTIVE


def test_a_topic_with_an_invalid_message_transform_is_refused(engine: Engine) -> None:
    with pytest.raises(InvalidArgument, match=r"message_transforms\[0\]"):
        create_topic(engine, message_transforms=[{}])
