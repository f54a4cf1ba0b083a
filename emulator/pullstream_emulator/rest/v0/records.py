"""Records: the form of messages in /v0.

A record's data is any JSON value; the message carries its text. Data of other publishers that is
not JSON appears as {"$bytes": base64}. Tag and node are the attributes with these names, `meta` has
all other attributes, and a record's key is the message's ordering key.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import Any

from pullstream_emulator.rest.json_text import Json, dumps, to_array
from pullstream_protocol.errors import InvalidArgument
from pullstream_protocol.message_limits import MAX_ATTRIBUTES
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .fields import MAX_QUOTED, Fields, text
from .json_text import is_json

FIELDS = ("data", "tag", "node", "key", "meta")

# Converting this many bytes of messages to records takes a step of 10 ms. This is also the default
# size of a response or event.
MAX_RECORDS_WRITTEN = 256 * 1024

_RESERVED = frozenset({"tag", "node"})


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
    def from_fields(cls, fields: Fields) -> View:
        """Read include_data and so on. Without data, tags are included by default."""
        data = fields.flag("include_data", True)
        return cls(
            data=data,
            tags=fields.flag("include_tags", not data),
            meta=fields.flag("include_meta", data),
        )


def to_messages(value: Any, at: str, node: str = "") -> list[pubsub.PubsubMessage]:
    """Convert an array of records to messages.

    Args:
        value: The array.
        at: Name of the array, for errors.
        node: Node of the records that do not name one.

    Raises:
        InvalidArgument: The value is not an array, or a record is invalid.
    """
    if not isinstance(value, list):
        raise InvalidArgument(f"{at} must be an array.")
    if not value:
        raise InvalidArgument(f"{at} must have at least one element.")
    return [
        _message(Fields(record, FIELDS, f"{at}[{number}]."), node)
        for number, record in enumerate(value)
    ]


def _message(fields: Fields, node: str) -> pubsub.PubsubMessage:
    attributes = _meta(fields)
    if tag := fields.text("tag"):
        attributes["tag"] = tag
    if node := fields.text("node") or node:
        attributes["node"] = node
    # The data is text, even for null: see json_text.loads_records.
    data: Json = fields.required("data")
    return pubsub.PubsubMessage(
        data=data.encode(), attributes=attributes, ordering_key=fields.text("key")
    )


def _meta(fields: Fields) -> dict[str, str]:
    meta = fields.value("meta")
    if meta is None:
        return {}
    at = fields.path("meta")
    if not isinstance(meta, dict):
        raise InvalidArgument(f"{at} must be an object.")
    if len(meta) > MAX_ATTRIBUTES:
        raise InvalidArgument(f"{at} must have at most {MAX_ATTRIBUTES} members: {len(meta)}.")
    if reserved := _RESERVED.intersection(meta):
        raise InvalidArgument(f"{at} must not have {min(reserved)}: it is a field of the record.")
    return {
        text(name, at): text(value, f"{at}.{name[:MAX_QUOTED]}") for name, value in meta.items()
    }


def to_json(messages: list[bytes], view: View) -> Json:
    """Return the array of records for stored messages, each a serialized PubsubMessage."""
    return to_array(_record(pubsub.PubsubMessage.FromString(each), view) for each in messages)


def _record(message: pubsub.PubsubMessage, view: View) -> Json:
    # Built member by member, because it is faster and there are many records.
    time = message.publish_time
    milliseconds = time.seconds * 1000 + time.nanos // 1_000_000
    told = f'{{"$seq":{message.message_id},"$ts":{milliseconds}'
    attributes = dict(message.attributes)
    tag, node = attributes.pop("tag", None), attributes.pop("node", None)
    if view.tags and tag is not None:
        told += f',"$tag":{dumps(tag)}'
    if node is not None:
        told += f',"$node":{dumps(node)}'
    if view.data and message.ordering_key:
        told += f',"$key":{dumps(message.ordering_key)}'
    if view.data:
        told += f',"data":{_data(message.data)}'
    if view.meta and attributes:
        told += f',"meta":{dumps(attributes)}'
    return Json(told + "}")


def _data(data: bytes) -> Json:
    try:
        told = data.decode()
    except UnicodeDecodeError:
        told = ""
    if is_json(told):
        # Line breaks can only occur between the parts of the value. In an event they would end a
        # line.
        return Json(told.replace("\r", " ").replace("\n", " "))
    return dumps({"$bytes": b64encode(data).decode()})
