"""An error as Google's HTTP front end words it."""

from __future__ import annotations

from typing import Any

from protocol.errors import InvalidArgument, RpcError, code_name


def body(error: RpcError) -> dict[str, Any]:
    """The JSON of an answer that tells of `error`; its HTTP status is `error.code`."""
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
    """The request is not what its RPC takes."""
    return InvalidArgument(f"Invalid JSON payload received. {problem}")


def bad_value(at: str, kind: str, problem: str) -> InvalidArgument:
    """The value of the field `at` is not of its kind."""
    return InvalidArgument(f"Invalid value at '{at}' ({kind}), {problem}")
