"""Columns of messages have the same content as the messages."""

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from pullstream_protocol.messages import columns_pb2 as columns
from pullstream_protocol.messages import pubsub_pb2 as pubsub

READERS: list[tuple[type[Message], type[Message]]] = [
    (columns.ReceivedMessageColumns, pubsub.ReceivedMessage),
    (columns.PubsubMessageColumns, pubsub.PubsubMessage),
    (columns.AttributeColumns, pubsub.PubsubMessage.AttributesEntry),
]


@pytest.mark.parametrize(
    ("reader", "read"), READERS, ids=lambda kind: kind.DESCRIPTOR.full_name.partition(".v1.")[2]
)
def test_a_columns_message_type_has_the_same_field_names_and_numbers_as_the_original_type(
    reader: type[Message], read: type[Message]
) -> None:
    """Fields have the same names and numbers.

    Each field is repeated, and embedded messages are bytes.
    """
    theirs = read.DESCRIPTOR.fields_by_name
    for field in reader.DESCRIPTOR.fields:
        assert field.number == theirs[field.name].number
        assert field.is_repeated
        is_embedded = theirs[field.name].type == FieldDescriptor.TYPE_MESSAGE
        kind = FieldDescriptor.TYPE_BYTES if is_embedded else theirs[field.name].type
        assert field.type == kind


def test_a_streaming_pull_response_read_as_columns_keeps_all_fields_of_the_response() -> None:
    """The other fields are available, also whether they are set."""
    response = pubsub.StreamingPullResponse(
        received_messages=[pubsub.ReceivedMessage(ack_id=ack_id) for ack_id in "ab"]
    )
    read = columns.ResponseColumns.FromString(response.SerializeToString())
    assert not read.HasField("subscription_properties")
    encoded = [one.SerializeToString() for one in response.received_messages]
    assert list(read.received_messages) == encoded
    response.subscription_properties.exactly_once_delivery_enabled = True
    read = columns.ResponseColumns.FromString(response.SerializeToString())
    assert read.subscription_properties == response.subscription_properties


def test_concatenated_encoded_messages_read_as_columns_have_one_list_per_field() -> None:
    """A field that one of them does not have leaves no trace."""
    messages = [
        pubsub.PubsubMessage(message_id="1", data=b"a", ordering_key="k"),
        pubsub.PubsubMessage(message_id="2", data=b"b", attributes={"x": "y"}),
    ]
    row = b"".join(message.SerializeToString() for message in messages)
    read = columns.PubsubMessageColumns.FromString(row)
    assert list(read.message_id) == ["1", "2"]
    assert list(read.data) == [b"a", b"b"]
    assert list(read.ordering_key) == ["k"]
    entries = columns.AttributeColumns.FromString(b"".join(read.attributes))
    assert list(entries.key) == ["x"]
    assert list(entries.value) == ["y"]


def test_message_attributes_read_as_columns_have_a_key_and_a_value_for_each_entry() -> None:
    """Either may be empty. Keys and values have the same positions."""
    message = pubsub.PubsubMessage(attributes={"": "", "key": "", "other": "value"})
    read = columns.PubsubMessageColumns.FromString(message.SerializeToString())
    entries = columns.AttributeColumns.FromString(b"".join(read.attributes))
    assert dict(zip(entries.key, entries.value, strict=True)) == message.attributes
