"""aiohttp routes of the administration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from pullstream_emulator.services.disk_barrier import change

from .admin import PREFIX, Admin

if TYPE_CHECKING:
    from pullstream_emulator.storage.storage import Storage


def admin_routes(admin: Admin, storage: Storage | None) -> list[web.RouteDef]:
    """Return the routes under /v0/admin, to be served on the event loop that owns the engine.

    Args:
        admin: Handles the requests.
        storage: Persists changes, for example the effects of advancing the clock.
    """

    async def answer(request: web.Request) -> web.Response:
        body = await request.read()
        status, content = await change(
            storage, lambda: admin.answer(request.method, request.path, request.query, body)
        )
        return web.json_response(content, status=status)

    return [web.route("*", PREFIX + "/{rest:.*}", answer)]
