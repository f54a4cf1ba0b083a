"""Messages become rows unchanged."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullstream.message_fields import Columns
from pullstream_protocol.messages import columns_pb2 as columns
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.columns.random_messages import RECEIVED

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from pullstream.columns.record_batch import SCHEMA, row_schema, to_batch  # noqa: E402

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MESSAGES = st.lists(RECEIVED, max_size=20)


@given(MESSAGES, st.sampled_from([1, 3, 512]))
def test_each_spark_row_has_the_data_attributes_key_id_and_times_of_its_message(
    received: list[pubsub.ReceivedMessage], at_once: int
) -> None:
    """Times are in microseconds, and uncounted attempts are null, for any number read at once."""
    with patch("pullstream.message_fields._AT_ONCE", at_once):
        rows = to_batch(Columns([one.SerializeToString() for one in received]))
    rows.validate(full=True)
    assert rows.schema == SCHEMA
    assert rows.num_rows == len(received)
    for row, one in zip(rows.to_pylist(), received, strict=True):
        stamp = one.message.publish_time
        published = timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1000)
        assert row["message_id"] == one.message.message_id
        assert row["data"] == one.message.data
        assert dict(row["attributes"]) == dict(one.message.attributes)
        assert row["ordering_key"] == one.message.ordering_key
        assert row["publish_time"] == EPOCH + published
        assert row["delivery_attempt"] == (one.delivery_attempt or None)


def test_a_message_attribute_without_value_is_an_empty_string_in_its_spark_row() -> None:
    """Servers may omit empty values, which protobuf for Python does not."""
    half = columns.AttributeColumns(key=["half"]).SerializeToString()
    whole = columns.AttributeColumns(key=["whole"], value=["x"]).SerializeToString()
    messages = [
        columns.PubsubMessageColumns(attributes=entries).SerializeToString()
        for entries in ([half, whole], [], [whole])
    ]
    received = [
        columns.ReceivedMessageColumns(message=[one]).SerializeToString() for one in messages
    ]
    rows = to_batch(Columns(received))
    assert rows.column("attributes").to_pylist() == [
        [("half", ""), ("whole", "x")],
        [],
        [("whole", "x")],
    ]


def test_spark_rows_have_a_last_column_with_the_subscription_if_configured() -> None:
    """The column is the last one, with the same value in each row."""
    rows = to_batch(Columns([b""] * 3), "projects/p/subscriptions/s")
    assert rows.schema == row_schema(include_subscription=True)
    assert rows.schema.names == [*SCHEMA.names, "subscription"]
    assert rows.column("subscription").to_pylist() == ["projects/p/subscriptions/s"] * 3


def test_the_columns_of_message_rows_have_the_arrow_types_that_spark_expects() -> None:
    """A source's first Arrow batch must have exactly the types of its schema."""
    assert [(field.name, str(field.type)) for field in row_schema(include_subscription=True)] == [
        ("message_id", "string"),
        ("data", "binary"),
        ("attributes", "map<string, string>"),
        ("ordering_key", "string"),
        ("publish_time", "timestamp[us, tz=UTC]"),
        ("delivery_attempt", "int32"),
        ("subscription", "string"),
    ]
    assert pa.types.is_map(SCHEMA.field("attributes").type)
