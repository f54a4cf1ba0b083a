"""Faults as text, for example `error:Publish:UNAVAILABLE:times=5`, or as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc

from pullstream_protocol.errors import BY_CODE

from .fault import Fault
from .faults import Faults

_Arguments = dict[str, Any]

_SCOPE = ("resource", "probability", "times")


@dataclass(frozen=True)
class _Form:
    """Arguments of one kind of fault.

    Attributes:
        set: Sets the fault.
        positional: Required arguments; the command line accepts them without names, in this order.
        optional: Optional arguments.
        acts_once: The fault acts when it is set, and not later.
    """

    set: Callable[[Faults, _Arguments], Fault]
    positional: tuple[str, ...] = ()
    optional: tuple[str, ...] = _SCOPE
    acts_once: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.positional, *self.optional)


_MESSAGE = ("message", *_SCOPE)

KINDS = {
    "delay": _Form(lambda faults, a: faults.delay(**a), ("method", "seconds")),
    "error": _Form(lambda faults, a: faults.error(**_error(a)), ("method", "code"), _MESSAGE),
    "lose-reply": _Form(lambda faults, a: faults.lose_reply(**a), ("method",), ("code", *_SCOPE)),
    "drop": _Form(lambda faults, a: faults.drop(**a), ("method",)),
    "abort-streams": _Form(
        lambda faults, a: faults.abort_streams(**_error(a)), ("code",), _MESSAGE, acts_once=True
    ),
    "close-streams": _Form(lambda faults, a: faults.close_streams(**a), acts_once=True),
    "abort-streams-after": _Form(
        lambda faults, a: faults.abort_streams_after(**_error(a)), ("responses", "code"), _MESSAGE
    ),
    "limit-streams": _Form(
        lambda faults, a: faults.limit_streams(**a), ("bytes_per_second",), ("resource",)
    ),
    "silence-streams": _Form(lambda faults, a: faults.silence_streams(**a), (), ("resource",)),
    "duplicate-deliveries": _Form(lambda faults, a: faults.duplicate_deliveries(**a)),
    "shuffle-deliveries": _Form(lambda faults, a: faults.shuffle_deliveries(**a)),
    "expire-leases": _Form(lambda faults, a: faults.expire_leases(**a)),
    "black-hole": _Form(lambda faults, a: faults.black_hole(), (), ()),
}


@dataclass(frozen=True)
class FaultRequest:
    """A request for a fault, created by `from_text` or `from_json`.

    Both, and `set`, raise ValueError for invalid input.

    Attributes:
        kind: The kind of fault.
        arguments: The arguments of the method of `Faults`, by name.
    """

    kind: str
    arguments: Mapping[str, Any]

    @classmethod
    def from_text(cls, text: str) -> FaultRequest:
        """Parse KIND[:VALUE...][:NAME=VALUE,...], such as `delay:Pull:0.5:times=3`."""
        kind, *parts = text.split(":")
        form = _form(kind)
        given: _Arguments = {}
        positional = iter(form.positional)
        for part in parts:
            if "=" not in part:
                name = next(positional, None)
                if name is None:
                    raise ValueError(f"{kind} cannot take {part!r} without a name: give NAME=VALUE")
                _put(given, name, part)
                continue
            for pair in part.split(","):
                name, equals, value = pair.partition("=")
                if not equals:
                    raise ValueError(f"{pair!r} must have the form NAME=VALUE")
                _put(given, name, value)
        return cls._checked(kind, given)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> FaultRequest:
        """Read a fault from its fields by name, including `kind`."""
        given = dict(fields)
        kind = given.pop("kind", None)
        if not isinstance(kind, str):
            raise ValueError(f"kind must be one of {', '.join(KINDS)}")
        return cls._checked(kind, given)

    @classmethod
    def _checked(cls, kind: str, given: Mapping[str, Any]) -> FaultRequest:
        form = _form(kind)
        for name in given:
            if name not in form.names:
                known = ", ".join(form.names) or "nothing"
                raise ValueError(f"{kind} has no {name!r}; it takes {known}")
        for name in form.positional:
            if name not in given:
                raise ValueError(f"{kind} needs {name!r}")
        return cls(kind, {name: _READ[name](name, value) for name, value in given.items()})

    @property
    def acts_once(self) -> bool:
        """Whether the fault acts only on streams that are open when it is set."""
        return KINDS[self.kind].acts_once

    def set(self, faults: Faults) -> Fault:
        """Put the fault in force."""
        return KINDS[self.kind].set(faults, dict(self.arguments))


def _form(kind: str) -> _Form:
    if kind not in KINDS:
        raise ValueError(f"there is no fault {kind!r}; there are {', '.join(KINDS)}")
    return KINDS[kind]


def _put(given: _Arguments, name: str, value: str) -> None:
    if name in given:
        raise ValueError(f"{name!r} is given twice")
    given[name] = value


def _error(arguments: _Arguments) -> _Arguments:
    """Replace `code` and `message` by `error`."""
    cls = BY_CODE[arguments.pop("code")]
    message = arguments.pop("message", "This error was requested as a fault.")
    return {"error": cls(message), **arguments}


# ---- values: text on the command line, numbers or text in JSON -----------------------------------


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text, not {value!r}")
    return value


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number, not {value!r}") from None


def _count(name: str, value: Any) -> int:
    number = _number(name, value)
    if not number.is_integer():
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    return int(number)


def _times(name: str, value: Any) -> int | None:
    return None if value is None else _count(name, value)


def _code(name: str, value: Any) -> grpc.StatusCode:
    code = grpc.StatusCode.__members__.get(str(value))
    if code not in BY_CODE:
        raise ValueError(f"{name} must be a gRPC status such as UNAVAILABLE, not {value!r}")
    return code


_READ: dict[str, Callable[[str, Any], Any]] = {
    "method": _text,
    "seconds": _number,
    "bytes_per_second": _number,
    "code": _code,
    "message": _text,
    "responses": _count,
    "resource": _text,
    "probability": _number,
    "times": _times,
}
