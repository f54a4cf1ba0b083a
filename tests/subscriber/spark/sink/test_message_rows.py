"""The sink's options, columns and rows."""

from __future__ import annotations

import re
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from pullstream.rpc.endpoint import Endpoint, ServerAccess  # noqa: E402
from pullstream.spark.sink.message_rows import check_columns, encode_rows  # noqa: E402
from pullstream.spark.sink.options import SinkOptions  # noqa: E402
from pullstream_protocol.messages import pubsub_pb2 as pubsub  # noqa: E402

TOPIC = "projects/p/topics/rows"


def test_the_spark_sink_needs_only_the_option_topic_and_has_defaults_for_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server comes from the driver's environment, because executors may have another one."""
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "localhost:8085")
    options = {"TOPIC": TOPIC, "checkpointLocation": "/x", "queryName": "q"}
    local = ServerAccess(Endpoint("localhost:8085", plaintext=True))
    assert SinkOptions.parse(options) == SinkOptions(TOPIC, local, 600.0)
    monkeypatch.delenv("PUBSUB_EMULATOR_HOST")
    google = ServerAccess(Endpoint("pubsub.googleapis.com:443", plaintext=False))
    assert SinkOptions.parse({"topic": TOPIC}).access == google


def test_the_spark_sink_accepts_a_topic_id_with_a_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """The project comes from an option or the environment."""
    assert SinkOptions.parse({"topic": "rows", "project": "p"}).topic == TOPIC
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    assert SinkOptions.parse({"topic": "rows"}).topic == TOPIC


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "option 'topic' is missing"),
        ({"topic": "rows"}, "option 'topic' is 'rows', which gives projects//topics/rows"),
        ({"topic": "projects/p/subscriptions/rows"}, "must be projects/P/topics/T, or T alone"),
        (
            {"topic": TOPIC, "batchSize": "3"},
            "'batchSize' is unknown; the options are ca, cert, endpoint",
        ),
        ({"topic": TOPIC, "retrySeconds": "-1"}, "'retrySeconds' is '-1'; it must be a number of"),
        ({"topic": TOPIC, "endpoint": "a b"}, "endpoint must have the form host:port, got 'a b'"),
    ],
)
def test_the_spark_sink_refuses_an_invalid_option_with_its_name_and_allowed_form(
    options: dict[str, str], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the allowed form."""
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    with pytest.raises(ValueError, match=re.escape(text)):
        SinkOptions.parse(options)


def decoded(batch: Any) -> list[pubsub.PubsubMessage]:
    """Return the messages of a record batch, in the order of their keys."""
    entries = encode_rows(batch, TOPIC)
    request = b"".join(entry for of_key in entries.values() for entry in of_key)
    messages = list(pubsub.PublishRequest.FromString(request).messages)
    assert [one.ordering_key for one in messages] == [
        key for key, of_key in entries.items() for _ in of_key
    ]
    return messages


def rows(**columns: Any) -> list[pubsub.PubsubMessage]:
    types = {
        "data": pa.binary(),
        "attributes": pa.map_(pa.string(), pa.string()),
        "ordering_key": pa.string(),
    }
    arrays = {name: pa.array(values, types[name]) for name, values in columns.items()}
    return decoded(pa.record_batch(arrays))


def test_the_spark_sink_makes_a_message_of_the_data_attributes_and_key_of_a_row() -> None:
    """Nulls count as missing columns."""
    found = rows(
        data=[b"\xff", None, b""],
        attributes=[[("a", "1"), ("b", "")], [("c", "2")], [("d", "3")]],
        ordering_key=["k", None, ""],
    )
    assert found == [
        pubsub.PubsubMessage(data=b"\xff", attributes={"a": "1", "b": ""}, ordering_key="k"),
        pubsub.PubsubMessage(attributes={"c": "2"}),
        pubsub.PubsubMessage(attributes={"d": "3"}),
    ]


def test_a_text_data_column_of_the_spark_sink_is_encoded_as_utf_8() -> None:
    """Text is encoded as UTF-8."""
    batch = pa.record_batch({"data": pa.array(["zwölf"])})
    assert decoded(batch) == [pubsub.PubsubMessage(data="zwölf".encode())]


def test_the_spark_sink_refuses_a_row_without_data_and_attributes() -> None:
    """The server would refuse the whole request without naming the row."""
    with pytest.raises(ValueError, match=r"neither data nor attributes.*filter such rows out"):
        rows(data=[b"", None], attributes=[None, []])


def test_the_spark_sink_refuses_a_null_attribute_value() -> None:
    """The error names the attribute."""
    with pytest.raises(ValueError, match="attribute 'a' of a row is null"):
        rows(attributes=[[("a", None)]])


@pytest.mark.parametrize(
    "schema", ["data binary", "data string, ordering_key string", "attributes map<string,string>"]
)
def test_the_spark_sink_accepts_rows_with_data_or_attributes_and_any_optional_columns(
    schema: str,
) -> None:
    """Every column is optional, but data or attributes must be present."""
    types = pytest.importorskip("pyspark.sql.types")
    check_columns(_struct(types, schema))


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("data binary, message_id string", "column 'message_id' is not part of a message"),
        ("data bigint", "column 'data' has the type bigint; it must be binary or string"),
        ("ordering_key string", "neither a column 'data' nor 'attributes'"),
    ],
)
def test_the_spark_sink_refuses_unknown_columns(schema: str, text: str) -> None:
    """No column is dropped silently."""
    types = pytest.importorskip("pyspark.sql.types")
    with pytest.raises(ValueError, match=re.escape(text)):
        check_columns(_struct(types, schema))


def _struct(types: Any, schema: str) -> Any:
    """Return a schema without the session that Spark's own parser needs."""
    kinds = {
        "binary": types.BinaryType(),
        "string": types.StringType(),
        "bigint": types.LongType(),
        "map<string,string>": types.MapType(types.StringType(), types.StringType()),
    }
    struct = types.StructType()
    for column in schema.split(", "):
        name, kind = column.split()
        struct.add(name, kinds[kind])
    return struct


def test_the_spark_sink_does_not_publish_attributes_that_servers_add_themselves() -> None:
    """Rows of a topic with a schema have them. The context of a trace is kept."""
    added = {"googclient_schemaname": "s", "googclient_schemaencoding": "JSON"}
    trace = {"googclient_traceparent": "00-ab-cd-01"}
    rows = [
        {"data": b"x", "attributes": [*added.items(), *trace.items(), ("a", "1")]},
        {"data": b"y", "attributes": list(added.items())},
    ]
    kind = pa.schema([("data", pa.binary()), ("attributes", pa.map_(pa.string(), pa.string()))])
    encoded = encode_rows(pa.RecordBatch.from_pylist(rows, schema=kind), TOPIC)[""]
    messages = pubsub.PublishRequest.FromString(b"".join(encoded)).messages
    assert [dict(one.attributes) for one in messages] == [{"a": "1", **trace}, {}]


def test_the_spark_sink_refuses_a_row_with_a_reserved_attribute() -> None:
    """The server would refuse the whole request."""
    kind = pa.schema([("data", pa.binary()), ("attributes", pa.map_(pa.string(), pa.string()))])
    rows = [{"data": b"x", "attributes": [("goog_x", "1")]}]
    with pytest.raises(ValueError, match="attribute name 'goog_x' begins with 'goog'"):
        encode_rows(pa.RecordBatch.from_pylist(rows, schema=kind), TOPIC)
