"""Error responses in the form of Google's HTTP front end."""

from __future__ import annotations

from typing import Any

from pullstream_protocol.errors import InvalidArgument, RpcError, code_name


def body(error: RpcError) -> dict[str, Any]:
    """Return the JSON of an error response; its HTTP status is `error.code`."""
    content: dict[str, Any] = {
        "code": int(error.code or 500),
        "message": error.message,
        "status": code_name(error),
    }
    if error.reason:
        content["details"] = [
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": error.reason,
                "domain": error.domain,
                "metadata": dict(error.metadata or {}),
            }
        ]
    return {"error": content}


def bad_payload(problem: str) -> InvalidArgument:
    """Return the error for a request that does not have its RPC's form."""
    return InvalidArgument(f"Invalid JSON payload received. {problem}")


def bad_value(at: str, kind: str, problem: str) -> InvalidArgument:
    """Return the error for a value of the wrong kind in the field `at`."""
    return InvalidArgument(f"Invalid value at '{at}' ({kind}), {problem}")
