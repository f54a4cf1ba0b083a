"""Records: the form of messages in /v0.

A record's data is any JSON value; the message carries its text. Data of other publishers that is
not JSON appears as {"$bytes": base64}. Tag and node are the attributes with these names, `meta` has
all other attributes, and a record's key is the message's ordering key.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from pullstream_protocol.errors import InvalidArgument
from pullstream_protocol.message_limits import MAX_ATTRIBUTES
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .json_body import Body, compact, is_json

# Converting this many bytes of messages to records takes a step of 10 ms. This is also the default
# size of a response or event.
MAX_RECORDS_WRITTEN = 256 * 1024

_RESERVED = frozenset({"tag", "node"})


class Record(Body):
    """A record that is appended."""

    data: Raw
    tag: str | None = None
    node: str | None = None
    key: str | None = None
    meta: Annotated[dict[str, str], Meta(max_length=MAX_ATTRIBUTES)] | None = None


@dataclass(frozen=True)
class View:
    """The parts of records that a reader wants. Number, time and node are always included.

    Attributes:
        data: Include data and key.
        tags: Include tags.
        meta: Include the other attributes.
    """

    data: bool = True
    tags: bool = False
    meta: bool = True

    @classmethod
    def of(cls, data: bool | None, tags: bool | None, meta: bool | None) -> View:
        """Return the view with these parts. By default it has data and meta, or tags alone."""
        data = data is not False
        return cls(data, not data if tags is None else tags, data if meta is None else meta)


def to_messages(records: list[Record], node: str | None) -> list[pubsub.PubsubMessage]:
    """Convert records to messages.

    Args:
        records: The records.
        node: Node of the records that do not name one.

    Raises:
        InvalidArgument: A record is invalid.
    """
    return [_message(record, f"records[{number}]", node) for number, record in enumerate(records)]


def _message(record: Record, at: str, node: str | None) -> pubsub.PubsubMessage:
    attributes = record.meta or {}
    if reserved := _RESERVED.intersection(attributes):
        raise InvalidArgument(
            f"{at}.meta must not have {min(reserved)}: it is a field of the record."
        )
    if record.tag:
        attributes["tag"] = record.tag
    if node := record.node or node:
        attributes["node"] = node
    return pubsub.PubsubMessage(
        data=compact(record.data, f"{at}.data"), attributes=attributes, ordering_key=record.key
    )


def to_array(messages: list[bytes], view: View) -> Raw:
    """Return the array of records for stored messages, each a serialized PubsubMessage."""
    records = [_record(pubsub.PubsubMessage.FromString(each), view) for each in messages]
    return Raw(msgspec.json.encode(records))


def _record(message: pubsub.PubsubMessage, view: View) -> dict[str, Any]:
    time = message.publish_time
    milliseconds = time.seconds * 1000 + time.nanos // 1_000_000
    record: dict[str, Any] = {"$seq": int(message.message_id), "$ts": milliseconds}
    attributes = dict(message.attributes)
    tag, node = attributes.pop("tag", None), attributes.pop("node", None)
    if view.tags and tag is not None:
        record["$tag"] = tag
    if node is not None:
        record["$node"] = node
    if view.data and message.ordering_key:
        record["$key"] = message.ordering_key
    if view.data:
        record["data"] = _data(message.data)
    if view.meta and attributes:
        record["meta"] = attributes
    return record


def _data(data: bytes) -> Raw | dict[str, str]:
    if not is_json(data):
        return {"$bytes": b64encode(data).decode()}
    # Line breaks can only occur between the parts of the value. In an event they would end a line.
    return Raw(data.replace(b"\r", b" ").replace(b"\n", b" "))
