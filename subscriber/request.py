"""Requests out of what callers write: a message, a dict, or keywords.

A mistake is named by its field. Protobuf's own texts often say no more than "bad argument type for
built-in operation".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

M = TypeVar("M", bound=Message)


def build_request(
    message_type: type[M], request: M | Mapping[str, Any] | None, fields: Mapping[str, Any]
) -> M:
    """The request of an RPC: `request`, or a message made of those `fields` that are not None.

    Raises:
        ValueError: both were given, or a field does not exist.
        TypeError: `request` is another kind of message, or a field's value does not fit.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    if request is None:
        return make_message(message_type, given)
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
    """A message with these fields, or an error that names the wrong one; see `build_request`."""
    for name, value in fields.items():
        field = message_type.DESCRIPTOR.fields_by_name.get(name)
        # Protobuf would take the text apart, and acknowledge "a", "b" and "c".
        if isinstance(value, (str, bytes)) and field is not None and _is_list(field):
            raise TypeError(f"{name} must be a list, got {value!r:.80}")
    try:
        return message_type(**fields)
    except (TypeError, ValueError) as error:
        raise _explanation(message_type, fields, "") or error from error


def routing_header(request: Message) -> tuple[str, str]:
    """The metadata by which Google's front ends route a call: its resource, percent-encoded.

    In every request of this API the resource is field 1: its name, or, to be updated, all of it.
    """
    field = request.DESCRIPTOR.fields_by_number[1]
    key, value = field.name, getattr(request, field.name)
    if isinstance(value, Message):
        key, value = f"{key}.name", getattr(value, "name", "")
    return "x-goog-request-params", f"{key}={quote(value, safe='/')}"


def _explanation(
    message_type: type[Message], fields: Mapping[str, Any], path: str
) -> TypeError | ValueError | None:
    """Why `message_type(**fields)` fails: each field is tried alone, dicts are looked into."""
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
            # Of lists and maps, the field itself is named: their items have no name.
            inner: Any = None if _is_list(known[name]) else known[name].message_type
            if inner is not None and isinstance(value, Mapping):
                found = _explanation(GetMessageClass(inner), value, f"{path}{name}.")
                if found is not None:
                    return found
            return type(error)(f"{path}{name}: {_shown(value)} does not fit ({error})")
    return None


def _is_list(field: Any) -> bool:
    """Whether a field of a descriptor is repeated; a map is, too.

    `is_repeated` is missing from protobuf 5, and `label` is deprecated in 7.
    """
    return isinstance(field.default_value, list)


def _shown(value: object) -> str:
    """A value on one short line; of a message, whose text has many, the kind."""
    return f"a {type(value).__name__}" if isinstance(value, Message) else f"{value!r:.80}"
