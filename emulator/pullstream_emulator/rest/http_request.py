"""Parts of an HTTP request that both APIs need."""

from __future__ import annotations

from aiohttp import web

from pullstream_emulator.engine.resources.publish_limits import MAX_PAYLOAD_BYTES
from pullstream_protocol.errors import InvalidArgument


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
