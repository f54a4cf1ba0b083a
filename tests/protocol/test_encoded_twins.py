"""A twin message with encoded fields has the same wire format as the plain message."""

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.message import Message

from pullstream_protocol.messages import channels_pb2, encoded_pb2, feeds_pb2, pubsub_pb2

TWINS: list[tuple[type[Message], type[Message]]] = [
    (encoded_pb2.EncodedReceivedMessage, pubsub_pb2.ReceivedMessage),
    (encoded_pb2.EncodedPullResponse, pubsub_pb2.PullResponse),
    (encoded_pb2.EncodedStreamingPullResponse, pubsub_pb2.StreamingPullResponse),
    (encoded_pb2.EncodedPublishRequest, pubsub_pb2.PublishRequest),
    (encoded_pb2.EncodedReadResponse, feeds_pb2.ReadResponse),
    (encoded_pb2.EncodedFrame, feeds_pb2.Frame),
    (encoded_pb2.EncodedFrame.EncodedMessages, feeds_pb2.Frame.Messages),
    (encoded_pb2.EncodedPollResponse, channels_pb2.PollResponse),
    (encoded_pb2.EncodedItem, channels_pb2.PollResponse.Item),
]
# Fields with a whole twin as bytes. The twin is encoded once for all readers.
TWINS_AS_BYTES = {channels_pb2.PollResponse.DESCRIPTOR.fields_by_name["items"]}
MESSAGES = [
    pubsub_pb2.PubsubMessage(message_id="1"),
    pubsub_pb2.PubsubMessage(data=b"\x00\xff", message_id="2", ordering_key="key"),
    pubsub_pb2.PubsubMessage(
        data=b"x" * 300,
        attributes={"color": "grün", "empty": ""},
        message_id="3",
        publish_time={"seconds": 1_700_000_000, "nanos": 123_000_000},
    ),
]


def plain_received() -> list[pubsub_pb2.ReceivedMessage]:
    """Return the messages as deliveries."""
    return [
        pubsub_pb2.ReceivedMessage(ack_id=f"ack-{n}", message=message, delivery_attempt=n)
        for n, message in enumerate(MESSAGES)
    ]


def encoded_received() -> list[encoded_pb2.EncodedReceivedMessage]:
    """Return the same deliveries with each message encoded beforehand."""
    return [
        encoded_pb2.EncodedReceivedMessage(
            ack_id=f"ack-{n}", message=message.SerializeToString(), delivery_attempt=n
        )
        for n, message in enumerate(MESSAGES)
    ]


def fields_of(kind: type[Message]) -> list[descriptor_pb2.FieldDescriptorProto]:
    """Return the fields of a message class as the compiler wrote them."""
    proto = descriptor_pb2.DescriptorProto()
    kind.DESCRIPTOR.CopyToProto(proto)
    return list(proto.field)


def test_the_comparison_tests_cover_every_message_type_of_encoded_proto() -> None:
    """A twin added to encoded.proto must be added to the list that these tests use."""
    listed = {twin.DESCRIPTOR.name for twin, _ in TWINS}
    assert set(encoded_pb2.DESCRIPTOR.message_types_by_name) <= listed


def test_message_types_of_encoded_proto_have_the_same_fields_as_the_plain_types() -> None:
    """Names, numbers, labels and types agree, except for the message itself, which is bytes."""
    field_proto = descriptor_pb2.FieldDescriptorProto
    twin_of = {f".{plain.DESCRIPTOR.full_name}": twin.DESCRIPTOR for twin, plain in TWINS}
    for twin, plain in TWINS:
        expected = fields_of(plain)
        for field in expected:
            is_message = field.type_name == f".{pubsub_pb2.PubsubMessage.DESCRIPTOR.full_name}"
            if is_message or plain.DESCRIPTOR.fields_by_name[field.name] in TWINS_AS_BYTES:
                field.type = field_proto.TYPE_BYTES
                field.ClearField("type_name")
            elif field.type_name in twin_of:
                field.type_name = f".{twin_of[field.type_name].full_name}"
        assert fields_of(twin) == expected


def test_a_pull_response_of_encoded_messages_is_parsed_as_a_plain_pull_response() -> None:
    """The broker's concatenation is the PullResponse that it would have built, byte for byte."""
    plain = pubsub_pb2.PullResponse(received_messages=plain_received())
    encoded = encoded_pb2.EncodedPullResponse(received_messages=encoded_received())

    wire = encoded.SerializeToString()

    assert pubsub_pb2.PullResponse.FromString(wire) == plain
    assert len(wire) == plain.ByteSize()


def test_a_streaming_pull_response_built_of_encoded_messages_equals_the_plain_one() -> None:
    """Confirmations and properties travel unchanged together with encoded messages."""
    response = pubsub_pb2.StreamingPullResponse
    acknowledged = response.AcknowledgeConfirmation(
        ack_ids=["a"],
        invalid_ack_ids=["b"],
        unordered_ack_ids=["c"],
        temporary_failed_ack_ids=["d"],
    )
    modified = response.ModifyAckDeadlineConfirmation(
        ack_ids=["e"], invalid_ack_ids=["f"], temporary_failed_ack_ids=["g"]
    )
    properties = response.SubscriptionProperties(
        exactly_once_delivery_enabled=True, message_ordering_enabled=True
    )
    plain = response(
        received_messages=plain_received(),
        acknowledge_confirmation=acknowledged,
        modify_ack_deadline_confirmation=modified,
        subscription_properties=properties,
    )
    encoded = encoded_pb2.EncodedStreamingPullResponse(
        received_messages=encoded_received(),
        acknowledge_confirmation=acknowledged,
        modify_ack_deadline_confirmation=modified,
        subscription_properties=properties,
    )

    wire = encoded.SerializeToString()

    assert response.FromString(wire) == plain
    assert len(wire) == plain.ByteSize()


def test_a_plain_pull_response_is_parsed_as_a_response_of_encoded_messages() -> None:
    """In the other direction the bytes of each message are complete."""
    wire = pubsub_pb2.PullResponse(received_messages=plain_received()).SerializeToString()

    received = encoded_pb2.EncodedPullResponse.FromString(wire).received_messages

    assert [each.ack_id for each in received] == ["ack-0", "ack-1", "ack-2"]
    parsed = [pubsub_pb2.PubsubMessage.FromString(each.message) for each in received]
    assert parsed == MESSAGES


@pytest.mark.parametrize("message", [b"", b"\x0a\x00"], ids=["no bytes", "an empty field"])
def test_an_encoded_message_of_zero_bytes_is_parsed_as_an_unset_message_field(
    message: bytes,
) -> None:
    """Empty bytes are omitted from the wire, as encoded.proto warns. Any other value is present."""
    encoded = encoded_pb2.EncodedReceivedMessage(ack_id="a", message=message)
    received = pubsub_pb2.ReceivedMessage.FromString(encoded.SerializeToString())
    assert received.HasField("message") is (message != b"")
