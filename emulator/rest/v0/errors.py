"""Errors as /v0 words them: {"error": {"code": "topic_full", "message": "..."}}."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc
from aiohttp import web

from protocol.errors import RpcError

from .json_text import to_object
from .short_names import short

JSON = {"Content-Type": "application/json; charset=UTF-8"}

# The HTTP status of a gRPC status, and the code of an error that has no reason of its own.
_BY_STATUS = {
    grpc.StatusCode.INVALID_ARGUMENT: (400, "invalid_request"),
    grpc.StatusCode.OUT_OF_RANGE: (400, "invalid_request"),
    grpc.StatusCode.UNAUTHENTICATED: (401, "unauthorized"),
    grpc.StatusCode.PERMISSION_DENIED: (403, "forbidden"),
    grpc.StatusCode.NOT_FOUND: (404, "not_found"),
    grpc.StatusCode.ALREADY_EXISTS: (409, "conflict"),
    grpc.StatusCode.ABORTED: (409, "conflict"),
    grpc.StatusCode.FAILED_PRECONDITION: (409, "conflict"),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (429, "throttled"),
    grpc.StatusCode.UNIMPLEMENTED: (501, "not_implemented"),
    grpc.StatusCode.UNAVAILABLE: (503, "unavailable"),
    grpc.StatusCode.DEADLINE_EXCEEDED: (504, "deadline_exceeded"),
}
_OTHER = (500, "internal")

# Refusals that have an HTTP status of their own.
_BY_CODE = {"topic_full": 422}

# When to try again after a 429 or a 503, in seconds.
_RETRY_AFTER = {"Retry-After": "1"}


def response(error: RpcError) -> web.Response:
    code = code_of(error)
    status = _BY_CODE.get(code) or _status_and_code(error)[0]
    headers = {**JSON, **_RETRY_AFTER} if status in (429, 503) else JSON
    told = body(code, error.message, _detail(error))
    return web.Response(status=status, text=told, headers=headers)


def body(code: str, message: str, detail: Mapping[str, Any] | None = None) -> str:
    """An error's text, whatever its status."""
    return to_object({"error": content(code, message, detail)}) + "\n"


def content(code: str, message: str, detail: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """An error's own part, of a body or of an event."""
    told: dict[str, Any] = {"code": code, "message": message}
    return {**told, "detail": detail} if detail else told


def code_of(error: RpcError) -> str:
    """What programs tell errors apart by."""
    return error.reason.lower() if error.reason else _status_and_code(error)[1]


def _status_and_code(error: RpcError) -> tuple[int, str]:
    return _BY_STATUS.get(error.grpc_status_code, _OTHER)


def _detail(error: RpcError) -> dict[str, Any]:
    """What the error names, under the names of /v0."""
    told = error.metadata or {}
    if "path" in told:
        # Of a cycle that a router would close.
        return {"cycle": [short(topic) for topic in told["path"].split(",")]}
    return {kind: short(name) for kind, name in told.items()}
