"""Encoding of messages as parts of a serialized PublishRequest.

The protobuf library needs 3 µs for a message of 100 bytes: it builds an object for each message,
copies it into the request, and copies it again when it serializes the request. These functions
write the same bytes directly. The fields of google.pubsub.v1 are:

    PublishRequest   1 topic, 2 messages
    PubsubMessage    1 data, 2 attributes, 5 ordering_key
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from pullstream_protocol.message_limits import (
    MAX_ATTRIBUTE_NAME_BYTES,
    MAX_ATTRIBUTE_VALUE_BYTES,
    MAX_ATTRIBUTES,
    MAX_ORDERING_KEY_BYTES,
    MAX_REQUEST_BYTES,
    MAX_REQUEST_MESSAGES,
    TRACE_ATTRIBUTES,
    is_reserved,
)

from .exceptions import MessageTooLargeError

# Tags of length-delimited fields: the field number, shifted by 3 bits, plus 2.
_FIELD_1 = b"\x0a"
_FIELD_2 = b"\x12"
_FIELD_5 = b"\x2a"


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


class _Heads(dict[int, bytes]):
    """By length of the data: the bytes before the data of a message that has data only."""

    def __missing__(self, size: int) -> bytes:
        length = _varint(size)
        head = b"".join((_FIELD_2, _varint(1 + len(length) + size), _FIELD_1, length))
        self[size] = head
        return head


# For messages shorter than SHORT, so that there is a limited number of them.
HEADS = _Heads()
SHORT = 2048


def encode_topic(topic: str) -> bytes:
    """Return the beginning of a request: the topic."""
    return _field(_FIELD_1, _utf8("topic", topic))


def encode_data(data: bytes) -> bytes:
    """Return the part of a request for a message with data only, which is not empty."""
    return HEADS[len(data)] + data if len(data) < SHORT else encode_message(data, b"")


def encode_message(data: bytes, suffix: bytes) -> bytes:
    """Return the part of a request for one message.

    Args:
        data: The data.
        suffix: The other fields, from `encode_attributes` and `encode_ordering_key`.
    """
    encoded = _field(_FIELD_1, data) if data else b""
    return b"".join((_FIELD_2, _varint(len(encoded) + len(suffix)), encoded, suffix))


@lru_cache(maxsize=4096)
def encode_ordering_key(ordering_key: str) -> bytes:
    """Return the encoded ordering key; nothing for an empty one.

    Raises:
        ValueError: The key is longer than 1,024 bytes, or UTF-8 cannot encode it.
    """
    if not ordering_key:
        return b""
    encoded = _utf8("ordering_key", ordering_key)
    if len(encoded) > MAX_ORDERING_KEY_BYTES:
        raise ValueError(
            f"ordering_key has {len(encoded)} bytes; it may have {MAX_ORDERING_KEY_BYTES}"
        )
    return _field(_FIELD_5, encoded)


def encode_attributes(attributes: Mapping[str, str | bytes]) -> bytes:
    """Return the encoded attributes.

    Raises:
        TypeError: A name is not a str, or a value is neither a str nor bytes.
        ValueError: There are too many attributes, or one of them is too long, has a reserved name,
            or is no text that UTF-8 can encode.
    """
    if len(attributes) > MAX_ATTRIBUTES:
        raise ValueError(
            f"a message has {len(attributes)} attributes; it may have {MAX_ATTRIBUTES}"
        )
    parts = []
    for name, value in attributes.items():
        if not isinstance(name, str) or not isinstance(value, (str, bytes)):
            raise TypeError(f"attribute {name!r} is {value!r:.80}; it must be a str")
        key = _utf8("attribute name", name)
        encoded = _utf8(f"attribute {name!r:.80}", value)
        if is_reserved(name):
            raise ValueError(
                f"attribute name {name!r:.80} begins with 'goog', which only servers set; leave "
                f"the attribute out (allowed are {' and '.join(sorted(TRACE_ATTRIBUTES))})"
            )
        if not key or len(key) > MAX_ATTRIBUTE_NAME_BYTES:
            raise ValueError(
                f"attribute name {name!r:.80} has {len(key)} bytes; it may have "
                f"1 to {MAX_ATTRIBUTE_NAME_BYTES}"
            )
        if len(encoded) > MAX_ATTRIBUTE_VALUE_BYTES:
            raise ValueError(
                f"attribute {name!r:.80} has {len(encoded)} bytes; it may have "
                f"{MAX_ATTRIBUTE_VALUE_BYTES}"
            )
        parts.append(_field(_FIELD_2, _field(_FIELD_1, key) + _field(_FIELD_2, encoded)))
    return b"".join(parts)


def _utf8(what: str, text: str | bytes) -> bytes:
    """Return the text in UTF-8, because a server accepts nothing else in a string.

    Raises:
        ValueError: UTF-8 cannot encode the text, or the bytes are not UTF-8.
    """
    try:
        return text.encode() if isinstance(text, str) else text.decode().encode()
    except UnicodeError as error:
        raise ValueError(f"{what} is {text!r:.80}, which is not valid UTF-8 ({error})") from None


def check_size(topic: str, entry: bytes) -> None:
    """Check that a request with one message is not too large for the server.

    Args:
        topic: Full name of the topic.
        entry: The encoded message.

    Raises:
        MessageTooLargeError: The request would be too large.
    """
    # A short message needs no look at the topic, whose name is short.
    if len(entry) > MAX_REQUEST_BYTES // 2:
        size = len(encode_topic(topic)) + len(entry)
        if size > MAX_REQUEST_BYTES:
            raise MessageTooLargeError(
                f"a request with this message alone has {size:,} bytes; the server accepts "
                f"{MAX_REQUEST_BYTES:,}"
            )


def cut(topic: str, entries: Sequence[bytes]) -> Iterator[tuple[Sequence[bytes], int]]:
    """Divide messages into requests of the largest size that the server accepts.

    Args:
        topic: Full name of the topic.
        entries: The encoded messages, each of which fits into a request.

    Yields:
        The messages of a request, and their size in bytes.
    """
    room = MAX_REQUEST_BYTES - len(encode_topic(topic))
    start = 0
    while start < len(entries):
        part = entries[start : start + MAX_REQUEST_MESSAGES]
        size = sum(map(len, part))
        while size > room:
            # Cut the half off, and add messages until the request is full.
            kept = len(part) // 2 or 1
            size = sum(map(len, part[:kept]))
            while kept < len(part) and size + len(part[kept]) <= room:
                size += len(part[kept])
                kept += 1
            part = part[:kept]
        yield part, size
        start += len(part)


def _field(tag: bytes, content: bytes) -> bytes:
    return b"".join((tag, _varint(len(content)), content))
