"""Error responses of /v0: {"error": {"code": "topic_full", "message": "..."}}."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc
from aiohttp import web

from pullstream_emulator.rest.http_request import JSON, to_json
from pullstream_protocol.errors import RpcError

from .short_names import short

# For each gRPC status: the HTTP status, and the code of an error without a reason.
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

# Error codes with a special HTTP status.
_BY_CODE = {"topic_full": 422}

# Seconds after which to retry a 429 or a 503.
_RETRY_AFTER = {"Retry-After": "1"}


def response(error: RpcError) -> web.Response:
    """Return the HTTP response to an error; 429 and 503 ask the client to retry after 1 s."""
    code = code_of(error)
    status = _BY_CODE.get(code) or _status_and_code(error)[0]
    headers = {**JSON, **_RETRY_AFTER} if status in (429, 503) else JSON
    text = body(code, error.message, _detail(error))
    return web.Response(status=status, text=text, headers=headers)


def body(code: str, message: str, detail: Mapping[str, Any] | None = None) -> str:
    """Return the body of an error response."""
    # A header that an error quotes may have bytes that are not UTF-8.
    valid = message.encode(errors="replace").decode()
    return to_json({"error": content(code, valid, detail)}) + "\n"


def content(code: str, message: str, detail: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the error object of a body or of an event."""
    error: dict[str, Any] = {"code": code, "message": message}
    return {**error, "detail": detail} if detail else error


def code_of(error: RpcError) -> str:
    """Return the code by which programs distinguish errors."""
    return error.reason.lower() if error.reason else _status_and_code(error)[1]


def _status_and_code(error: RpcError) -> tuple[int, str]:
    return _BY_STATUS.get(error.grpc_status_code, _OTHER)


def _detail(error: RpcError) -> dict[str, Any]:
    """Return the resources that the error names, in the form of /v0."""
    metadata = error.metadata or {}
    if "path" in metadata:
        # The path of a cycle that a router would close.
        return {"cycle": [short(topic) for topic in metadata["path"].split(",")]}
    return {kind: short(name) for kind, name in metadata.items()}
