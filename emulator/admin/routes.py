"""The administration as routes of an aiohttp application."""

from __future__ import annotations

from aiohttp import web

from .admin import PREFIX, Admin


def admin_routes(admin: Admin) -> list[web.RouteDef]:
    """Everything under /v0/admin, to be served on the event loop that owns the broker's engine."""

    async def answer(request: web.Request) -> web.Response:
        status, content = admin.answer(
            request.method, request.path, request.query, await request.read()
        )
        return web.json_response(content, status=status)

    return [web.route("*", PREFIX + "/{rest:.*}", answer)]
