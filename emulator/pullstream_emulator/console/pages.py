"""Serves the files of the console."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from aiohttp import web

from . import ConsoleMode

_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}

_HEADERS = {
    # Everything comes from the broker. Other sites cannot show the console in a frame, where they
    # could trick a user into clicking.
    "Content-Security-Policy": "default-src 'self'; "
    "frame-ancestors 'none'; form-action 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # A new release has new files at the same addresses.
    "Cache-Control": "no-cache",
}

# The page reads its mode from this attribute.
_MODE = b'data-mode="full"'


class Console:
    """Answers requests for the pages, without a token.

    Args:
        mode: Whether the pages have actions.
    """

    def __init__(self, mode: ConsoleMode) -> None:
        self._mode = mode

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.get("/console", self.redirect),
            web.get("/console/{file:[a-z_]*(?:\\.[a-z]+)?}", self.answer),
        ]

    async def redirect(self, request: web.Request) -> web.Response:
        """Redirect to the address with a slash, below which the page's own links work."""
        raise web.HTTPFound("console/")

    async def answer(self, request: web.Request) -> web.Response:
        """Answer with a file."""
        name = request.match_info["file"] or "index.html"
        body = _content(name)
        if body is None:
            raise web.HTTPNotFound(text=f"The console has no file {name}.\n")
        if name == "index.html":
            body = body.replace(_MODE, f'data-mode="{self._mode}"'.encode())
        content_type = _TYPES[name.rpartition(".")[2]]
        return web.Response(
            body=body, headers={**_HEADERS, "Content-Type": f"{content_type}; charset=utf-8"}
        )


def accepts_html(request: web.Request) -> bool:
    """Return whether a request comes from a browser that wants to show a page."""
    return "text/html" in request.headers.get("Accept", "")


@lru_cache
def _content(name: str) -> bytes | None:
    """Return the content of a file; None if there is no such file."""
    if name.rpartition(".")[2] not in _TYPES:
        return None
    path = files(__package__) / "static" / name
    return path.read_bytes() if path.is_file() else None
