"""Administration without a network: a method, a path and JSON in, JSON or an error out.

GET    /v0/admin/faults            the faults in force
POST   /v0/admin/faults            set one: {"kind": "delay", "method": "Pull", "seconds": 1},
                                   or {"fault": "delay:Pull:1"} as on the command line
DELETE /v0/admin/faults            lift all of them
DELETE /v0/admin/faults/ID         lift one
GET    /v0/admin/clock             the broker's time
POST   /v0/admin/clock:advance     advance it: {"seconds": 600}
GET    /v0/admin/backlog           ?subscription=: number of messages without a final ack
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from pullstream_emulator.faults.request import FaultRequest
from pullstream_protocol.errors import InvalidArgument, NotFound

if TYPE_CHECKING:
    from pullstream_emulator.engine import Engine
    from pullstream_emulator.faults import Faults
    from pullstream_protocol.clock import AdvancingClock

PREFIX = "/v0/admin"

# No valid request is larger.
MAX_BODY_BYTES = 64 * 1024

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

# Latest time for the clock: RFC 3339 has no dates after 9999, and some time must remain after it.
_LATEST = datetime(9900, 1, 1, tzinfo=timezone.utc).timestamp()


class Request(NamedTuple):
    """A request.

    Attributes:
        query: The query parameters.
        fields: The fields of the JSON body.
        name: The variable part of the path, such as a fault's id.
    """

    query: Mapping[str, str]
    fields: Mapping[str, Any]
    name: str


class Admin:
    """Answers administrative requests for one broker, on the thread that owns its engine.

    Args:
        engine: The engine of the broker.
        clock: Its clock.
        faults: Its faults.
    """

    def __init__(self, engine: Engine, clock: AdvancingClock, faults: Faults) -> None:
        self._engine = engine
        self._clock = clock
        self._faults = faults
        self._routes: list[tuple[str, re.Pattern[str], Callable[[Request], dict[str, Any]]]] = [
            ("GET", re.compile("/faults"), self._list_faults),
            ("POST", re.compile("/faults"), self._set_fault),
            ("DELETE", re.compile("/faults"), self._clear_faults),
            ("DELETE", re.compile("/faults/([^/]+)"), self._lift_fault),
            ("GET", re.compile("/clock"), self._time),
            ("POST", re.compile("/clock:advance"), self._advance),
            ("GET", re.compile("/backlog"), self._backlog),
        ]

    def answer(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: bytes = b""
    ) -> dict[str, Any]:
        """Handle one request, and return the content of its response.

        Args:
            method: The HTTP method.
            path: The path, with its prefix.
            query: The query parameters.
            body: The body; empty or JSON.

        Raises:
            RpcError: The request is refused.
        """
        try:
            return self._carry_out(method, path, query or {}, body)
        except ValueError as problem:
            raise InvalidArgument(str(problem)) from problem

    def _carry_out(
        self, method: str, path: str, query: Mapping[str, str], body: bytes
    ) -> dict[str, Any]:
        local = path.removeprefix(PREFIX)
        for verb, pattern, handle in self._routes:
            match = pattern.fullmatch(local)
            if verb == method and match is not None:
                name = match[1] if pattern.groups else ""
                return handle(Request(query, _fields(body), name))
        raise NotFound(f"There is no administrative request {method} {path}.")

    # ---- faults --------------------------------------------------------------------------------

    def _list_faults(self, request: Request) -> dict[str, Any]:
        return {"faults": [fault.describe() for fault in self._faults.active]}

    def _set_fault(self, request: Request) -> dict[str, Any]:
        text = request.fields.get("fault")
        if text is None:
            fault = FaultRequest.from_json(request.fields)
        elif isinstance(text, str) and len(request.fields) == 1:
            fault = FaultRequest.from_text(text)
        else:
            raise ValueError("fault must be text, and the only field")
        return fault.set(self._faults).describe()

    def _clear_faults(self, request: Request) -> dict[str, Any]:
        self._faults.clear()
        return {}

    def _lift_fault(self, request: Request) -> dict[str, Any]:
        for fault in self._faults.active:
            if str(fault.number) == request.name:
                fault.lift()
                return {}
        raise NotFound(f"There is no fault with the id {request.name} in force.")

    # ---- clock ---------------------------------------------------------------------------------

    def _time(self, request: Request) -> dict[str, Any]:
        now = self._clock.now()
        return {"now": date(now), "seconds": now}

    def _advance(self, request: Request) -> dict[str, Any]:
        seconds = request.fields.get("seconds")
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
            raise ValueError(f"seconds must be a number, not {seconds!r}")
        if not 0 <= seconds <= _LATEST - self._clock.now():
            raise ValueError(
                f"seconds must be 0 or more, and not past {date(_LATEST)}: {seconds!r}"
            )
        self._clock.advance(seconds)
        return self._time(request)

    def _backlog(self, request: Request) -> dict[str, Any]:
        return {"backlog": self._engine.backlog(request.query.get("subscription", ""))}


def _fields(body: bytes) -> Mapping[str, Any]:
    if not body:
        return {}
    if len(body) > MAX_BODY_BYTES:
        raise ValueError(f"The body must have at most {MAX_BODY_BYTES} bytes.")
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"The body is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ValueError("The body must be a JSON object.")
    return fields


def date(seconds: float) -> str:
    """Return a time as RFC 3339 text, given in seconds since the epoch."""
    # datetime.fromtimestamp has limits that depend on the system.
    return (_EPOCH + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
