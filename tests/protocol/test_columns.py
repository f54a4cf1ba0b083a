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
def test_a_reader_has_the_fields_that_it_reads(reader: type[Message], read: type[Message]) -> None:
    """Fields have the same names and numbers. Each is repeated, and embedded messages are bytes."""
    theirs = read.DESCRIPTOR.fields_by_name
    for field in reader.DESCRIPTOR.fields:
        assert field.number == theirs[field.name].number
        assert field.is_repeated
        is_embedded = theirs[field.name].type == FieldDescriptor.TYPE_MESSAGE
        kind = FieldDescriptor.TYPE_BYTES if is_embedded else theirs[field.name].type
        assert field.type == kind


def test_a_response_is_read_but_for_its_messages() -> None:
    """Its other fields are available, also whether they are set."""
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


def test_messages_in_a_row_are_one_message_of_columns() -> None:
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


def test_an_entry_of_attributes_has_both_key_and_value() -> None:
    """This also holds if they are empty, so keys and values have the same positions."""
    message = pubsub.PubsubMessage(attributes={"": "", "key": "", "other": "value"})
    read = columns.PubsubMessageColumns.FromString(message.SerializeToString())
    entries = columns.AttributeColumns.FromString(b"".join(read.attributes))
    assert dict(zip(entries.key, entries.value, strict=True)) == message.attributes
