"""Checks of settings that the broker stores and returns, but does not act on.

These are exports of a subscription, the ingestion of a topic, and message transforms. The rules are
those in the comments of google/pubsub/v1/pubsub.proto, so a setting that is accepted here has the
form that the real service requires. Output-only fields in a request are ignored. The broker sets
them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from google.protobuf.message import Message

from pullstream_emulator.error_texts import invalid_argument, too_large
from pullstream_protocol.errors import InvalidArgument
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .durations import MINUTE, in_words, seconds_of

EXPORTS = ("bigquery_config", "bigtable_config", "cloud_storage_config")

_MIN_FILE_SECONDS, _MAX_FILE_SECONDS = MINUTE, 10 * MINUTE
_MIN_FILE_BYTES, _MAX_FILE_BYTES = 1_000, 10 * 2**30
_MIN_FILE_MESSAGES = 1_000
_MAX_CODE_BYTES = 20 * 1024

_BIGQUERY_TABLE = re.compile(r"([^\s/:]+:)?[^\s./:]+[.:][^\s./:]+\.[^\s./:]+")
_BIGTABLE_TABLE = re.compile(r"projects/[^/\s]+/instances/[^/\s]+/tables/[^/\s]+")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")

# The fields without which a source of an ingestion cannot be found.
_REQUIRED_BY_SOURCE = {
    "aws_kinesis": ("stream_arn", "consumer_arn", "aws_role_arn", "gcp_service_account"),
    "cloud_storage": ("bucket",),
    "azure_event_hubs": ("namespace", "event_hub"),
    "aws_msk": ("cluster_arn", "topic", "aws_role_arn", "gcp_service_account"),
    "confluent_cloud": (
        *("bootstrap_server", "cluster_id", "topic"),
        *("identity_pool_id", "gcp_service_account"),
    ),
}
_MODEL = re.compile(
    r"projects/[^/\s]+/locations/[^/\s]+/"
    r"(endpoints/[^/\s]+|publishers/[^/\s]+/models/[^/\s]+)"
)


def finish_exports(subscription: pubsub.Subscription) -> None:
    """Check the exports of a subscription, and set their state.

    Raises:
        InvalidArgument: There is more than one delivery type, or an export is incomplete.
    """
    used = [export for export in EXPORTS if subscription.HasField(export)]
    if subscription.push_config.push_endpoint:
        used.insert(0, "push_config")
    if len(used) > 1:
        raise invalid_argument(
            f"{', '.join(used)}: a subscription has at most one delivery type; set one of "
            f"push_config, {', '.join(EXPORTS)}"
        )
    # Only the service sets these fields.
    subscription.ClearField("analytics_hub_subscription_info")
    if subscription.HasField("bigquery_config"):
        _finish_bigquery(subscription.bigquery_config)
    if subscription.HasField("bigtable_config"):
        _finish_bigtable(subscription.bigtable_config)
    if subscription.HasField("cloud_storage_config"):
        _finish_cloud_storage(subscription.cloud_storage_config)


def finish_ingestion(topic: pubsub.Topic) -> None:
    """Check the ingestion of a topic, and set the state of its source.

    Raises:
        InvalidArgument: The source lacks a field or has an invalid one.
    """
    # Only the service sets these fields.
    topic.ClearField("state")
    topic.ClearField("satisfies_pzs")
    if not topic.HasField("ingestion_data_source_settings"):
        return
    settings = topic.ingestion_data_source_settings
    at = "ingestion_data_source_settings"
    name = settings.WhichOneof("source")
    if name is None:
        raise _unset(at, f"needs one of {', '.join(_REQUIRED_BY_SOURCE)}")
    source = getattr(settings, name)
    _check_set(source, f"{at}.{name}", _REQUIRED_BY_SOURCE[name])
    if name == "cloud_storage":
        _check_bucket(source.bucket, f"{at}.cloud_storage.bucket")
        delimiter = source.text_format.delimiter
        if source.text_format.HasField("delimiter") and len(delimiter) != 1:
            raise _invalid(
                f"{at}.cloud_storage.text_format.delimiter", delimiter, "must be one character"
            )
    source.state = source.ACTIVE
    topic.state = pubsub.Topic.ACTIVE


def check_transforms(transforms: Sequence[pubsub.MessageTransform]) -> None:
    """Raise InvalidArgument for a message transform that is incomplete."""
    functions: set[str] = set()
    for index, transform in enumerate(transforms):
        at = f"message_transforms[{index}]"
        kind = transform.WhichOneof("transform")
        if kind is None:
            raise _unset(at, "needs one of javascript_udf, compression, ai_inference")
        if kind == "javascript_udf":
            function = transform.javascript_udf
            _check_function(function, f"{at}.javascript_udf")
            if function.function_name in functions:
                at_name = f"{at}.javascript_udf.function_name"
                raise _invalid(at_name, function.function_name, "must be unique in the list")
            functions.add(function.function_name)
        elif kind == "compression":
            required = ("compression_algorithm", "compression_mode")
            _check_set(transform.compression, f"{at}.compression", required)
        else:
            _check_model(transform.ai_inference.endpoint, f"{at}.ai_inference.endpoint")


def _finish_bigquery(config: pubsub.BigQueryConfig) -> None:
    _check_set(config, "bigquery_config", ("table",))
    if not _BIGQUERY_TABLE.fullmatch(config.table):
        form = "must have the form 'project.dataset.table'"
        raise _invalid("bigquery_config.table", config.table, form)
    if config.use_topic_schema and config.use_table_schema:
        raise invalid_argument(
            "bigquery_config: use_topic_schema and use_table_schema cannot both be true; set one "
            "of them"
        )
    config.state = config.ACTIVE


def _finish_bigtable(config: pubsub.BigtableConfig) -> None:
    _check_set(config, "bigtable_config", ("table",))
    if not _BIGTABLE_TABLE.fullmatch(config.table):
        form = "must have the form 'projects/PROJECT/instances/INSTANCE/tables/TABLE'"
        raise _invalid("bigtable_config.table", config.table, form)
    config.state = config.ACTIVE


def _finish_cloud_storage(config: pubsub.CloudStorageConfig) -> None:
    at = "cloud_storage_config"
    _check_bucket(config.bucket, f"{at}.bucket")
    if config.HasField("max_duration"):
        seconds = seconds_of(config.max_duration)
        if not _MIN_FILE_SECONDS <= seconds <= _MAX_FILE_SECONDS:
            form = f"must be from {in_words(_MIN_FILE_SECONDS)} to {in_words(_MAX_FILE_SECONDS)}"
            raise _invalid(f"{at}.max_duration", in_words(seconds), form)
    if config.max_bytes and not _MIN_FILE_BYTES <= config.max_bytes <= _MAX_FILE_BYTES:
        form = f"must be from {_MIN_FILE_BYTES} to {_MAX_FILE_BYTES}"
        raise _invalid(f"{at}.max_bytes", config.max_bytes, form)
    if config.max_messages and config.max_messages < _MIN_FILE_MESSAGES:
        form = f"must be at least {_MIN_FILE_MESSAGES}"
        raise _invalid(f"{at}.max_messages", config.max_messages, form)
    config.state = config.ACTIVE


def _check_function(function: pubsub.JavaScriptUDF, at: str) -> None:
    _check_set(function, at, ("function_name", "code"))
    if len(function.code.encode()) > _MAX_CODE_BYTES:
        raise too_large(f"{at}.code", len(function.code.encode()), _MAX_CODE_BYTES)
    if function.function_name not in function.code:
        form = "must be the name of a function in the code"
        raise _invalid(f"{at}.function_name", function.function_name, form)


def _check_model(endpoint: str, at: str) -> None:
    if not _MODEL.fullmatch(endpoint):
        form = (
            "must have the form 'projects/PROJECT/locations/LOCATION/endpoints/ENDPOINT' or "
            "'projects/PROJECT/locations/LOCATION/publishers/PUBLISHER/models/MODEL'"
        )
        raise _invalid(at, endpoint, form)


def _check_bucket(bucket: str, at: str) -> None:
    if not _BUCKET.fullmatch(bucket):
        form = (
            "must be the name of a bucket, without 'gs://': at least 3 lowercase letters, digits, "
            "'.', '_' and '-'"
        )
        raise _invalid(at, bucket, form)


def _check_set(message: Message, at: str, fields: Sequence[str]) -> None:
    for field in fields:
        if not getattr(message, field):
            raise _unset(f"{at}.{field}", "must be set")


def _unset(at: str, form: str) -> InvalidArgument:
    return invalid_argument(f"{at}: {form}")


def _invalid(at: str, value: object, form: str) -> InvalidArgument:
    return invalid_argument(f"{at}: '{value}' {form}")
