"""Parts of HTTP requests and responses that all paths need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from aiohttp import web

from pullstream_emulator.access import Access
from pullstream_emulator.engine.resources.publish_limits import MAX_PAYLOAD_BYTES
from pullstream_emulator.monitoring.status import MaySee
from pullstream_protocol.errors import InvalidArgument

# Every request may have these. The last two may carry the token: see `authorization`.
COMMON_PARAMETERS = ("project", "access_token", "oauth_token")

# The event loop converts JSON and messages of at most this many bytes, a thread larger ones.
MAX_QUICK = 64 * 1024

JSON = {"Content-Type": "application/json; charset=UTF-8"}


async def body(request: web.Request) -> bytes:
    """Return the whole body.

    Raises:
        InvalidArgument: The body is too long, or not encoded as its headers say.
    """
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise InvalidArgument(
            f"Request payload size exceeds the limit: {MAX_PAYLOAD_BYTES} bytes."
        ) from error
    except web.RequestPayloadError as error:
        raise InvalidArgument("The body is not encoded as the headers say.") from error


def authorization(request: web.Request) -> str | None:
    """Return the Authorization header, or the query parameter that Google's API also accepts."""
    token = request.query.get("access_token") or request.query.get("oauth_token")
    return request.headers.get("Authorization") or (f"Bearer {token}" if token else None)


def check_parameters(request: web.Request, known: Sequence[str]) -> None:
    """Refuse a request with a query parameter that is neither `known` nor common to all requests.

    Raises:
        InvalidArgument: There is such a parameter.
    """
    allowed = (*known, *COMMON_PARAMETERS)
    for parameter in request.query:
        if parameter not in allowed:
            raise InvalidArgument(
                f"There is no parameter {parameter[:100]!r}; there are {', '.join(allowed)}."
            )


def number(request: web.Request, name: str, default: int, *, minimum: int = 0) -> int:
    """Return a query parameter that must be a whole number; `default` if it is absent.

    Raises:
        InvalidArgument: It is not a number of at most 18 digits, or less than `minimum`.
    """
    text = request.query.get(name, str(default))
    if not (text.isascii() and text.isdecimal()) or len(text) > 18 or int(text) < minimum:
        raise InvalidArgument(
            f"The parameter {name} is {text[:100]!r}; it must be a number from {minimum}."
        )
    return int(text)


def json_response(content: Mapping[str, Any], status: int = 200) -> web.Response:
    """Return a response with a JSON object, on one line."""
    return web.Response(status=status, text=to_json(content) + "\n", headers=JSON)


def visible_projects(request: web.Request, access: Access | None) -> MaySee:
    """Return a test for the projects of the caller's principal, limited by `?project=`.

    Args:
        request: The request.
        access: Checks tokens; None allows everything to everybody.

    Raises:
        Unauthenticated: The broker has tokens, and the request has none of them.
    """
    principal = None
    if access is not None:
        principal = access.authenticate(authorization(request))
    wanted = request.query.get("project")

    def may_see(project: str) -> bool:
        return wanted in (None, project) and (principal is None or principal.may_use(project))

    return may_see


def to_json(value: Any) -> str:
    """Return a value's text; msgspec.Raw values in it keep their text."""
    return msgspec.json.encode(value).decode()
