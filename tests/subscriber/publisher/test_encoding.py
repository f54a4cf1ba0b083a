"""The hand-written encoding, compared with protobuf's."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pullstream.publisher.encoding import (
    SHORT,
    check_size,
    cut,
    encode_attributes,
    encode_data,
    encode_message,
    encode_ordering_key,
    encode_topic,
)
from pullstream.publisher.exceptions import MessageTooLargeError
from pullstream_protocol.message_limits import MAX_REQUEST_BYTES, TRACE_ATTRIBUTES
from pullstream_protocol.messages import pubsub_pb2 as pubsub

TOPIC = "projects/project-1/topics/orders"

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=50)
values = st.text(st.characters(codec="utf-8"), max_size=200)


@given(
    data=st.binary(max_size=300),
    attributes=st.dictionaries(names, values, max_size=5),
    key=st.text(st.characters(codec="utf-8"), max_size=100),
)
def test_protobuf_parses_publish_requests_of_the_sdks_encoder_into_the_same_fields(
    data: bytes, attributes: dict[str, str], key: str
) -> None:
    """A request of any messages is read with the same fields."""
    entry = encode_message(data, encode_attributes(attributes) + encode_ordering_key(key))
    request = pubsub.PublishRequest.FromString(encode_topic(TOPIC) + entry + entry)
    message = pubsub.PubsubMessage(data=data, attributes=attributes, ordering_key=key)
    assert request == pubsub.PublishRequest(topic=TOPIC, messages=[message, message])


@given(size=st.integers(1, 3 * SHORT))
@example(127 - 2)
@example(128)
@example(SHORT - 1)
@example(SHORT)
@example(16_383)
@example(16_384)
def test_protobuf_parses_encoded_messages_with_data_of_every_length(size: int) -> None:
    """The prepared beginnings and the general form agree with protobuf."""
    data = b"x" * size
    expected = pubsub.PublishRequest(messages=[pubsub.PubsubMessage(data=data)])
    assert encode_data(data) == encode_message(data, b"") == expected.SerializeToString()


def test_publish_accepts_bytes_as_value_of_a_message_attribute() -> None:
    """The official client accepts bytes for attributes, too."""
    assert encode_attributes({"a": b"caf\xc3\xa9"}) == encode_attributes({"a": "café"})


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"a": 1}, "attribute 'a' is 1; it must be a str"),
        ({1: "a"}, "attribute 1 is 'a'; it must be a str"),
    ],
)
def test_publish_refuses_an_attribute_value_of_an_invalid_type_and_names_the_attribute(
    attributes: dict[str, str], text: str
) -> None:
    """The error names the attribute and the value."""
    with pytest.raises(TypeError, match=text):
        encode_attributes(attributes)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"": "a"}, "attribute name '' has 0 bytes; it may have 1 to 256"),
        ({"n" * 257: "a"}, "has 257 bytes; it may have 1 to 256"),
        ({"a": "v" * 1025}, "attribute 'a' has 1025 bytes; it may have 1024"),
        ({str(number): "" for number in range(101)}, "has 101 attributes; it may have 100"),
        ({"a": b"\xff"}, "can't decode byte 0xff"),
        ({"a": "\udcff"}, r"attribute 'a' is '\\udcff', which is not valid UTF-8"),
        ({"\udcff": "a"}, r"attribute name is '\\udcff', which is not valid UTF-8"),
        ({"goog": "a"}, "attribute name 'goog' begins with 'goog', which only servers set; leave"),
        ({"googclient_schemaname": "a"}, "'googclient_schemaname' begins with 'goog'"),
    ],
)
def test_publish_refuses_message_attributes_that_the_server_would_refuse(
    attributes: dict[str, str | bytes], text: str
) -> None:
    """Otherwise the server would refuse all messages of the request."""
    with pytest.raises(ValueError, match=text):
        encode_attributes(attributes)


def test_publish_accepts_attributes_and_ordering_keys_of_the_servers_maximum_length() -> None:
    """The limits are the server's, not smaller ones."""
    encode_attributes({"n" * 256: "v" * 1024})
    encode_ordering_key("k" * 1024)
    with pytest.raises(ValueError, match="ordering_key has 1025 bytes; it may have 1024"):
        encode_ordering_key("k" * 1025)
    with pytest.raises(ValueError, match=r"ordering_key is '\\udcff', which is not valid UTF-8"):
        encode_ordering_key("\udcff")


def test_publish_accepts_trace_context_attributes_despite_their_reserved_prefix() -> None:
    """Servers accept only these attributes with the prefix from publishers."""
    encode_attributes(dict.fromkeys(TRACE_ATTRIBUTES, "00-ab-cd-01"))


def test_publish_accepts_a_message_of_the_maximum_size_and_refuses_a_larger_one() -> None:
    """The limit counts the whole request, with the topic and the framing."""
    room = MAX_REQUEST_BYTES - len(encode_topic(TOPIC)) - 10
    largest = encode_data(b"x" * room)
    check_size(TOPIC, largest)
    assert len(encode_topic(TOPIC) + largest) == MAX_REQUEST_BYTES
    with pytest.raises(MessageTooLargeError, match="has 10,000,001 bytes; the server accepts 10,0"):
        check_size(TOPIC, encode_data(b"x" * (room + 1)))


@given(st.lists(st.integers(1, 4_000_000), max_size=12))
def test_messages_split_into_publish_requests_are_complete_in_order_and_within_limits(
    sizes: list[int],
) -> None:
    """Each request fits, all messages are there in order, and no request could hold more."""
    room = MAX_REQUEST_BYTES - len(encode_topic(TOPIC))
    entries = [memoryview(bytes(4_000_000))[:size] for size in sizes]
    parts = list(cut(TOPIC, entries))  # type: ignore[arg-type]
    assert [len(entry) for part, _ in parts for entry in part] == sizes
    assert all(size == sum(map(len, part)) <= room for part, size in parts)
    assert all(size + len(following[0]) > room for (_, size), (following, _) in pairwise(parts))


def test_a_publish_request_has_at_most_a_thousand_messages() -> None:
    """More would be refused by the server."""
    assert [len(part) for part, _ in cut(TOPIC, [b"x"] * 2500)] == [1000, 1000, 500]
