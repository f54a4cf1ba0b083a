"""Requests from user arguments: a message, a dict, or keywords.

A message may be an instance of our classes or of the official client's classes, also inside a dict
or a list. The official client's messages are recognised by their protobuf names, without an import
of its package.

Errors name the field. Protobuf's own texts often say no more than "bad argument type for built-in
operation".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote

from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp

M = TypeVar("M", bound=Message)

# Protobuf packages of the official client's messages. Ours have the same encoding.
_OFFICIAL = ("google.pubsub.v1", "google.iam.v1")

# The forms of a value of these types, for errors.
_FORMS = {
    "google.protobuf.Duration": "a timedelta, or text in seconds such as '600s'",
    "google.protobuf.Timestamp": "a datetime, or text such as '2026-01-31T12:00:00Z'",
    "google.protobuf.FieldMask": "a FieldMask, or text such as 'labels,ack_deadline_seconds'",
}


def build_request(
    message_type: type[M], request: M | Mapping[str, Any] | None, fields: Mapping[str, Any]
) -> M:
    """Return the request of an RPC.

    Args:
        message_type: The type of the request.
        request: The user's request, or None.
        fields: The user's keywords. Those with the value None are ignored.

    Raises:
        ValueError: Both were given, or a field does not exist.
        TypeError: `request` is another type of message, or a value does not fit its field.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    if request is None:
        return make_message(message_type, given)
    request = _as_ours(message_type, request)
    if given:
        raise ValueError(
            f"pass either request= or keywords, not both (got request= and {', '.join(given)})"
        )
    if isinstance(request, message_type):
        return request
    if isinstance(request, Mapping):
        return make_message(message_type, request)
    raise TypeError(
        f"request must be a {message_type.__name__} or a dict, got {type(request).__name__}"
    )


def make_message(message_type: type[M], fields: Mapping[str, Any]) -> M:
    """Return a message with these fields. An error names the wrong field; see `build_request`."""
    for name, value in fields.items():
        field = message_type.DESCRIPTOR.fields_by_name.get(name)
        # Protobuf would split the text into characters, and acknowledge "a", "b" and "c".
        if isinstance(value, (str, bytes)) and field is not None and _is_list(field):
            raise TypeError(f"{name} must be a list, got {value!r:.80}")
    fields = _fields_as_ours(message_type, fields)
    try:
        return message_type(**fields)
    except (TypeError, ValueError) as error:
        raise _explanation(message_type, fields, "") or error from error


def message_of(message_type: type[M], value: Any) -> M:
    """Convert a dict of fields, or a message of the official client, to one of our messages.

    Any other value is returned unchanged, and protobuf refuses it later.
    """
    if isinstance(value, Mapping):
        return make_message(message_type, value)
    ours: M = _as_ours(message_type, value)
    return ours


def _as_ours(message_type: type[Message], value: Any) -> Any:
    """Convert a message of the official client to this type; return any other value unchanged."""
    if isinstance(value, message_type):
        return value
    # proto-plus, the base of the official client's messages, keeps the protobuf message in this
    # attribute.
    inner = getattr(value, "_pb", None)
    if isinstance(inner, Message):
        value = inner
    if isinstance(value, Message) and _official_name(value) == _local_name(message_type):
        return message_type.FromString(value.SerializeToString())
    return value


def _official_name(message: Message) -> str | None:
    """Return the message's name within its package, or None if it is not the official client's."""
    package = message.DESCRIPTOR.file.package
    return _local_name(type(message)) if package in _OFFICIAL else None


def _local_name(message_type: type[Message]) -> str:
    descriptor = message_type.DESCRIPTOR
    name: str = descriptor.full_name
    return name.removeprefix(f"{descriptor.file.package}.")


def _fields_as_ours(message_type: type[Message], fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the same fields, with messages of the official client replaced by ours."""
    known = message_type.DESCRIPTOR.fields_by_name
    return {
        name: value
        if (field := known.get(name)) is None or field.message_type is None
        else _field_as_ours(field, value)
        for name, value in fields.items()
    }


def _field_as_ours(field: Any, value: Any) -> Any:
    if field.message_type.GetOptions().map_entry:
        # No map of this API has messages as values.
        return value
    inner: type[Message] = GetMessageClass(field.message_type)
    if not _is_list(field):
        return _item_as_ours(inner, value)
    if isinstance(value, Iterable):
        return [_item_as_ours(inner, item) for item in value]
    return value


def _item_as_ours(message_type: type[Message], value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is None:
        # Local time, as in the official client. Protobuf would read it as UTC.
        return value.astimezone()
    if isinstance(value, str):
        return _text_as_ours(message_type, value)
    if isinstance(value, Mapping):
        return _fields_as_ours(message_type, value)
    return _as_ours(message_type, value)


def _text_as_ours(message_type: type[Message], text: str) -> Any:
    """Parse the text of a time, a duration or a field mask, as the official client does.

    Other text is returned unchanged. Protobuf refuses it, and `_explanation` names the field.
    """
    try:
        read = _READERS.get(message_type.DESCRIPTOR.full_name)
        return text if read is None else read(text)
    except (ValueError, OverflowError):
        return text


def _duration_of(text: str) -> Duration:
    duration = Duration()
    duration.FromJsonString(text)
    return duration


def _timestamp_of(text: str) -> Timestamp:
    timestamp = Timestamp()
    timestamp.FromJsonString(text)
    return timestamp


def _mask_of(text: str) -> FieldMask:
    """Parse `labels,ackDeadlineSeconds`. The official client refuses names with underscores."""
    paths = [path.strip() for path in text.split(",")]
    snake = [re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", path) for path in paths]
    return FieldMask(paths=[path for path in snake if path])


_READERS: dict[str, Callable[[str], Message]] = {
    "google.protobuf.Duration": _duration_of,
    "google.protobuf.Timestamp": _timestamp_of,
    "google.protobuf.FieldMask": _mask_of,
}


def routing_header(request: Message) -> tuple[str, str]:
    """Return the metadata by which Google's front ends route a call: its resource, URL-encoded.

    In every request of this API the resource is field 1: its name or, in updates, the whole
    resource.
    """
    field = request.DESCRIPTOR.fields_by_number[1]
    key, value = field.name, getattr(request, field.name)
    if isinstance(value, Message):
        key, value = f"{key}.name", getattr(value, "name", "")
    return "x-goog-request-params", f"{key}={quote(value, safe='/')}"


def _explanation(
    message_type: type[Message], fields: Mapping[str, Any], path: str
) -> TypeError | ValueError | None:
    """Find out why `message_type(**fields)` fails, by trying each field alone and inside dicts.

    Returns:
        The error to raise, or None if every field fits.
    """
    known = message_type.DESCRIPTOR.fields_by_name
    for name, value in fields.items():
        if name not in known:
            return ValueError(
                f"{path}{name}: {message_type.__name__} has no such field; "
                f"it has {', '.join(sorted(known))}"
            )
        try:
            message_type(**{name: value})
        except (TypeError, ValueError) as error:
            # For lists and maps the error names the field itself, because their items have no name.
            inner: Any = None if _is_list(known[name]) else known[name].message_type
            form = None if inner is None else _FORMS.get(inner.full_name)
            if inner is not None and isinstance(value, Mapping):
                found = _explanation(GetMessageClass(inner), value, f"{path}{name}.")
                if found is not None:
                    return found
            # Not the error's own type: a UnicodeEncodeError cannot be made from a text.
            kind = TypeError if isinstance(error, TypeError) else ValueError
            reason = f"({error})" if form is None else f"(it must be {form})"
            return kind(f"{path}{name}: {_shown(value)} does not fit {reason}")
    return None


def _is_list(field: Any) -> bool:
    """Return whether a field of a descriptor is repeated. Maps are repeated, too.

    `is_repeated` is missing from protobuf 5, and `label` is deprecated in 7.
    """
    return isinstance(field.default_value, list)


def _shown(value: object) -> str:
    """Return a short, one-line form of a value. For a message, that is its type."""
    return f"a {type(value).__name__}" if isinstance(value, Message) else f"{value!r:.80}"
