"""Errors that several parts of the broker raise, with the texts of the real service."""

from __future__ import annotations

from pullstream_protocol import names
from pullstream_protocol.errors import AlreadyExists, InvalidArgument, NotFound, ResourceExhausted


def missing(name: str) -> NotFound:
    """Return a NotFound that quotes the last part of a resource name."""
    return NotFound(f"Resource not found (resource={names.short_id(name)}).")


def exists(name: str) -> AlreadyExists:
    """Return an AlreadyExists that quotes the last part of a resource name."""
    return AlreadyExists(
        f"Resource already exists in the project (resource={names.short_id(name)})."
    )


def invalid_argument(argument: str) -> InvalidArgument:
    """Return an InvalidArgument; `argument` is a field's name, or a description of the problem."""
    return InvalidArgument(
        f"You have passed an invalid argument to the service (argument={argument})."
    )


def too_small(name: str, value: object, minimum: object) -> InvalidArgument:
    """Return an InvalidArgument for a value below `minimum`; `name` is a field or a description."""
    return InvalidArgument(
        f"The value for {name} is too small. You passed {value} in the request, but the minimum "
        f"value is {minimum}."
    )


def too_large(name: str, value: object, maximum: object) -> InvalidArgument:
    """Return an InvalidArgument for a value above `maximum`; `name` is a field or a description."""
    return InvalidArgument(
        f"The value for {name} is too large. You passed {value} in the request, but the maximum "
        f"value is {maximum}."
    )


def limit_exceeded(kind: str, current: int, maximum: int) -> ResourceExhausted:
    """Return a ResourceExhausted for a project with `current` resources of a kind."""
    return ResourceExhausted(
        f'Your project has exceeded a limit: (type="{kind}", current={current}, maximum={maximum}).'
    )
