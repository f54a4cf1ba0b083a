"""The projects whose resources a caller sees, in answers about several projects."""

from __future__ import annotations

from aiohttp import web

from pullstream_emulator.access import Access
from pullstream_emulator.monitoring.status import MaySee

from . import http_request


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
        principal = access.authenticate(http_request.authorization(request))
    wanted = request.query.get("project")

    def may_see(project: str) -> bool:
        return wanted in (None, project) and (principal is None or principal.may_use(project))

    return may_see
