"""The part of the HTTP application under /v0."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from aiohttp import web
from google.protobuf.message import Message

from pullstream_emulator.access import Access
from pullstream_emulator.access.current_principal import called_by
from pullstream_emulator.rest import http_request
from pullstream_emulator.rest.rpc_bridge import CallContext, RpcBridge
from pullstream_protocol import names
from pullstream_protocol.clock import Clock
from pullstream_protocol.errors import InvalidArgument, NotFound

from . import errors, reading, routers, topics, writing
from .json_body import Body
from .request import V0Request, valid_text
from .short_names import DEFAULT_PROJECT
from .watches import Watches

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


class V0Api:
    """Handles requests under /v0, on the event loop that owns the broker's engine.

    Args:
        calls: Runs RPCs.
        watches: The sessions and streams of watches.
        access: Checks tokens and projects; None allows everything to everybody.
        clock: Measures `performance`.
    """

    def __init__(
        self,
        calls: RpcBridge,
        watches: Watches,
        access: Access | None,
        clock: Clock,
    ) -> None:
        self._calls = calls
        self._access = access
        self._clock = clock
        self._endpoints = (
            *ENDPOINTS,
            endpoint("POST", "watch", watches.create),
            endpoint("GET", f"watch/{NAME}", watches.open, is_in_project=False),
            endpoint("DELETE", f"watch/{NAME}", watches.delete, is_in_project=False),
        )

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Handle a request; raise RpcError if it is refused. errors.response converts the error."""
        started = self._clock.monotonic()
        authorization = http_request.authorization(request)
        principal = None if self._access is None else self._access.authenticate(authorization)
        called_by(principal)
        endpoint, name = self._find(request)
        _check_query(request, endpoint)
        project = request.query.get("project", DEFAULT_PROJECT)
        names.validate_project(names.project_path(project))
        if principal is not None and endpoint.is_in_project:
            principal.check(project)
        body = await http_request.body(request)
        v0_request = V0Request(request, name, project, body, self._call)
        if not endpoint.takes_body:
            v0_request.content(Body)
        response = await endpoint.answer(v0_request)
        if isinstance(response, web.StreamResponse):
            return response
        spent = (self._clock.monotonic() - started) * 1000
        response["performance"] = {"server_total_ms": round(spent, 2)}
        status = 201 if response.get("created") else 200
        return http_request.json_response(response, status)

    def _find(self, request: web.Request) -> tuple[Endpoint, str]:
        """Return the endpoint for the request, and the name in its path."""
        path = request.raw_path.partition("?")[0]
        verbs: list[str] = []
        for each in self._endpoints:
            match = each.path.fullmatch(path)
            if match is not None and each.verb == request.method:
                return each, _name(match)
            if match is not None:
                verbs.append(each.verb)
        if not verbs:
            raise NotFound("There is no endpoint of /v0 with this path.")
        text = errors.body("method_not_allowed", f"This path takes {', '.join(verbs)}.")
        raise web.HTTPMethodNotAllowed(request.method, verbs, text=text, headers=http_request.JSON)

    async def _call(self, method: str, request: Message) -> Any:
        answer = _Answer()
        await self._calls.carry_out(method, request, answer)
        return answer.message


class _Answer(CallContext):
    """The context of an RPC; keeps its response."""

    def __init__(self) -> None:
        self.message: Any = None

    async def write(self, message: Message) -> None:
        self.message = message


def _check_query(request: web.Request, endpoint: Endpoint) -> None:
    _decoded(request.rel_url.raw_query_string, "The query")
    http_request.check_parameters(request, endpoint.parameters)
    for parameter, value in request.query.items():
        valid_text(value, parameter)


def _name(path: re.Match[str]) -> str:
    return _decoded(path[1], "The name in the path") if path.re.groups else ""


def _decoded(encoded: str, at: str) -> str:
    """Decode percent-encoding; refuse invalid UTF-8, because different names would become equal."""
    try:
        return valid_text(unquote(encoded, errors="strict"), at)
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{at} must be percent-encoded UTF-8: {error.reason}.") from error
