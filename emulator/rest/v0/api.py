"""/v0 of the HTTP application."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from aiohttp import web
from google.protobuf.message import Message

from emulator.access import Access
from emulator.access.caller import called_by
from emulator.rest import incoming
from emulator.rest.calls import CallContext, Calls
from protocol import names
from protocol.clock import Clock
from protocol.errors import InvalidArgument, NotFound

from . import errors
from .endpoints import ENDPOINTS, NAME, Endpoint, endpoint
from .fields import Fields, text
from .json_text import to_object
from .request import V0Request
from .short_names import DEFAULT_PROJECT
from .watches import Watches

# Every request may have these. The other two are how a token may come: see incoming.authorization.
_PARAMETERS = ("project", "access_token", "oauth_token")


class V0Api:
    """Answers what comes under /v0, on the event loop that owns the broker's engine.

    Args:
        calls: carries out the RPCs that the requests stand for.
        watches: their sessions and streams.
        access: who may do what; None for everybody everything.
        clock: what `performance` is measured with.
    """

    def __init__(self, calls: Calls, watches: Watches, access: Access | None, clock: Clock) -> None:
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
        """Raises RpcError for what is refused; errors.response makes an answer of it."""
        started = self._clock.monotonic()
        authorization = incoming.authorization(request)
        principal = None if self._access is None else self._access.authenticate(authorization)
        called_by(principal)
        found, name = self._find(request)
        _check_query(request, found)
        project = request.query.get("project", DEFAULT_PROJECT)
        names.validate_project(names.project_path(project))
        if principal is not None and found.is_in_project:
            principal.check(project)
        body = await incoming.body(request)
        asked = V0Request(request, name, project, body, self._call)
        if not found.takes_body:
            Fields(asked.content(), ())
        answered = await found.answer(asked)
        if isinstance(answered, web.StreamResponse):
            return answered
        spent = (self._clock.monotonic() - started) * 1000
        answered["performance"] = {"server_total_ms": round(spent, 2)}
        status = 201 if answered.get("created") else 200
        return web.Response(status=status, text=to_object(answered) + "\n", headers=errors.JSON)

    def _find(self, request: web.Request) -> tuple[Endpoint, str]:
        """What answers the request, and the name in its path."""
        path = request.raw_path.partition("?")[0]
        verbs: list[str] = []
        for each in self._endpoints:
            match = each.path.fullmatch(path)
            if match is not None and each.verb == request.method:
                return each, _name(match)
            if match is not None:
                verbs.append(each.verb)
        if not verbs:
            raise NotFound("/v0 has nothing under this path.")
        told = errors.body("method_not_allowed", f"This path takes {', '.join(verbs)}.")
        raise web.HTTPMethodNotAllowed(request.method, verbs, text=told, headers=errors.JSON)

    async def _call(self, method: str, request: Message) -> Any:
        answer = _Answer()
        await self._calls.carry_out(method, request, answer)
        return answer.message


class _Answer(CallContext):
    """What an RPC is answered with."""

    def __init__(self) -> None:
        self.message: Any = None

    async def write(self, message: Message) -> None:
        self.message = message


def _check_query(request: web.Request, endpoint: Endpoint) -> None:
    _decoded(request.rel_url.raw_query_string, "The query")
    known = (*endpoint.parameters, *_PARAMETERS)
    for parameter, value in request.query.items():
        if parameter not in known:
            raise InvalidArgument(
                f"There is no parameter {parameter[:100]!r}; there are {', '.join(known)}."
            )
        text(value, parameter)


def _name(path: re.Match[str]) -> str:
    return _decoded(path[1], "The name in the path") if path.re.groups else ""


def _decoded(encoded: str, at: str) -> str:
    """What is percent-encoded. Left to itself, all that is no UTF-8 would become the same."""
    try:
        return text(unquote(encoded, errors="strict"), at)
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{at} must be percent-encoded UTF-8: {error.reason}.") from error
