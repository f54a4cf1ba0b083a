"""Builds the request message of an RPC from an HTTP request's path, query and body."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from pullstream_emulator.error_body import bad_payload

from .proto_json import field_of, loads, merge, shortened
from .routes import Route

# Parameters that Google's front end accepts for every API. They fill no field.
SYSTEM_PARAMETERS = frozenset(
    """$.xgafv $alt $prettyPrint access_token alt callback fields key oauth_token prettyPrint
    quotaUser uploadType upload_protocol userIp""".split()  # noqa: SIM905
)


def read(route: Route, name: str, query: Iterable[tuple[str, str]], body: bytes) -> Message:
    """Build the request message of a route's RPC.

    Args:
        route: The route.
        name: The resource name from the path.
        query: The query parameters.
        body: The body.

    Raises:
        InvalidArgument: The query or the body does not fit the message.
    """
    request = route.rpc.request()
    if route.body == "*":
        merge(request, loads(body))
    elif route.body:
        part = getattr(request, route.body)
        part.SetInParent()
        merge(part, loads(body), route.body)
    else:
        merge(Empty(), loads(body))
    for parameter, value in query:
        if parameter not in SYSTEM_PARAMETERS:
            _bind(request, parameter, value)
    # Last, because the path determines the resource, even if the body names another one.
    _set(request, route.name_field, name)
    return request


def _bind(request: Message, parameter: str, value: str) -> None:
    """Set the field that a query parameter names, such as `options.requestedPolicyVersion`."""
    descriptor: Any = request.DESCRIPTOR
    fields: list[FieldDescriptor] = []
    for part in parameter.split("."):
        field = field_of(descriptor, part) if descriptor is not None else None
        if field is None:
            name = shortened(parameter)
            raise bad_payload(
                f'Unknown name "{name}": Cannot bind query parameter. '
                f"Field '{name}' could not be found in request message."
            )
        fields.append(field)
        descriptor = field.message_type
    bound: Any = value
    for field in reversed(fields):
        bound = {field.name: [bound] if field.is_repeated else bound}
    merge(request, bound)


def _set(request: Message, path: str, value: str) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        request = getattr(request, parent)
    setattr(request, last, value)
