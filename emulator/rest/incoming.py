"""What both APIs want to know of an HTTP request."""

from __future__ import annotations

from aiohttp import web

from emulator.engine.publishing import MAX_PAYLOAD_BYTES
from protocol.errors import InvalidArgument


async def body(request: web.Request) -> bytes:
    """All of it.

    Raises:
        InvalidArgument: it is longer than any may be, or not encoded as its headers say.
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
    """The header, or the parameter that Google's front end takes instead."""
    token = request.query.get("access_token") or request.query.get("oauth_token")
    return request.headers.get("Authorization") or (f"Bearer {token}" if token else None)
