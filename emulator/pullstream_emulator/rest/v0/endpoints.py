"""The endpoints of /v0, except those for watches."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from . import reading, routers, topics, writing
from .request import V0Request

# One segment of a path: a name, percent-encoded in any way.
NAME = "([^/]+)"

# The members of a response, without `performance`; or a response that was already sent.
Response = dict[str, Any] | web.StreamResponse


@dataclass(frozen=True)
class Endpoint:
    """A verb and a path, and the function that handles them.

    Attributes:
        verb: The HTTP method.
        path: Pattern of the path.
        answer: Handles the request.
        parameters: Additional query parameters. Some parameters are common to all endpoints.
        takes_body: Whether the endpoint has a body.
        is_in_project: The resource belongs to a project, to which the caller needs access.
    """

    verb: str
    path: re.Pattern[str]
    answer: Callable[[V0Request], Awaitable[Response]]
    parameters: tuple[str, ...]
    takes_body: bool
    is_in_project: bool = True


def endpoint(
    verb: str,
    path: str,
    answer: Callable[[V0Request], Awaitable[Response]],
    *parameters: str,
    is_in_project: bool = True,
) -> Endpoint:
    """Return an endpoint below /v0; `path` is a pattern, and PUT and POST take a body."""
    takes_body = verb in ("PUT", "POST")
    return Endpoint(verb, re.compile(f"/v0/{path}"), answer, parameters, takes_body, is_in_project)


ENDPOINTS = (
    endpoint("PUT", f"topics/{NAME}", topics.put),
    endpoint("GET", f"topics/{NAME}", topics.get),
    endpoint("DELETE", f"topics/{NAME}", topics.delete),
    endpoint("GET", "topics", topics.list_all, "page_size", "cursor"),
    endpoint("POST", f"topics/{NAME}", writing.append),
    endpoint("POST", f"topics/{NAME}/diff", reading.diff),
    endpoint("POST", f"topics/{NAME}/delete", writing.delete),
    endpoint("PUT", f"routers/{NAME}", routers.put),
    endpoint("GET", f"routers/{NAME}", routers.get),
    endpoint("DELETE", f"routers/{NAME}", routers.delete),
    endpoint("GET", "routers", routers.list_all, "source", "dest", "page_size", "cursor"),
)
