"""Faults as text, for the command line and the administration."""

from __future__ import annotations

from typing import Any

import pytest

from pullstream_emulator.faults import Faults
from pullstream_emulator.faults.request import FaultRequest


def described(request: FaultRequest) -> dict[str, Any]:
    """Return the description of the fault that this request sets, without default values."""
    usual = {"id": 1, "hits": 0, "resource": "*", "probability": 1.0, "times": None, "method": "*"}
    told = request.set(Faults()).describe()
    return {name: value for name, value in told.items() if usual.get(name, ...) != value}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "error:Publish:UNAVAILABLE:probability=0.1,times=5",
            {
                "kind": "error",
                "method": "Publish",
                "code": "UNAVAILABLE",
                "message": "This error was requested as a fault.",
                "probability": 0.1,
                "times": 5,
            },
        ),
        (
            "error:code=ABORTED,method=Publish,message=not today",
            {"kind": "error", "method": "Publish", "code": "ABORTED", "message": "not today"},
        ),
        (
            "delay:Pull:0.5:resource=projects/p/subscriptions/b*",
            {
                "kind": "delay",
                "method": "Pull",
                "seconds": 0.5,
                "resource": "projects/p/subscriptions/b*",
            },
        ),
        ("delay:*:2", {"kind": "delay", "seconds": 2.0}),
        (
            "lose-reply:Acknowledge",
            {"kind": "lose-reply", "method": "Acknowledge", "code": "UNAVAILABLE"},
        ),
        (
            "lose-reply:Pull:code=INTERNAL",
            {"kind": "lose-reply", "method": "Pull", "code": "INTERNAL"},
        ),
        ("drop:Pull:times=1", {"kind": "drop", "method": "Pull", "times": 1}),
        (
            "abort-streams-after:3:INTERNAL",
            {
                "kind": "abort-streams-after",
                "method": "StreamingPull",
                "responses": 3,
                "code": "INTERNAL",
                "message": "This error was requested as a fault.",
            },
        ),
        (
            "silence-streams:resource=billing",
            {"kind": "silence-streams", "method": "StreamingPull", "resource": "billing"},
        ),
        (
            "limit-streams:1e7:resource=billing",
            {
                "kind": "limit-streams",
                "method": "StreamingPull",
                "bytes_per_second": 10_000_000.0,
                "resource": "billing",
            },
        ),
        (
            "duplicate-deliveries:probability=.5",
            {"kind": "duplicate-deliveries", "probability": 0.5},
        ),
        ("shuffle-deliveries", {"kind": "shuffle-deliveries"}),
        ("expire-leases:times=3", {"kind": "expire-leases", "times": 3}),
        ("black-hole", {"kind": "black-hole"}),
    ],
)
def test_a_fault_description_may_be_one_line_of_text(text: str, fault: dict[str, Any]) -> None:
    """The line has the kind, its values in order, and names for the other settings."""
    assert described(FaultRequest.from_text(text)) == fault
    assert not FaultRequest.from_text(text).acts_once


@pytest.mark.parametrize("text", ["abort-streams:INTERNAL", "close-streams:times=2"])
def test_an_abort_or_close_streams_fault_given_as_text_is_read_as_a_fault_that_acts_once(
    text: str,
) -> None:
    """The option is refused where no stream can be open yet."""
    assert FaultRequest.from_text(text).acts_once


def test_a_fault_description_may_be_json() -> None:
    """Numbers are JSON numbers. Null means no limit."""
    fields = {"kind": "delay", "method": "Pull", "seconds": 2, "times": None, "probability": 0.5}
    fault = {"kind": "delay", "method": "Pull", "seconds": 2.0, "probability": 0.5}
    assert described(FaultRequest.from_json(fields)) == fault


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "there is no fault ''; there are delay, error, "),
        ("explode:Publish", "there is no fault 'explode'"),
        ("error", "error needs 'method'"),
        ("error:Publish", "error needs 'code'"),
        ("error:Publish:OK", "code must be a gRPC status such as UNAVAILABLE, not 'OK'"),
        ("error:Publish:unavailable", "code must be a gRPC status"),
        ("error:Publishing:ABORTED", "method must be the name of an RPC.*'Publishing'"),
        ("delay:Pull:soon", "seconds must be a number, not 'soon'"),
        ("delay:Pull:-1", "seconds must be 0 or more"),
        ("delay:Pull:nan", "seconds must be 0 or more"),
        ("delay:Pull:1:2", "delay cannot take '2' without a name"),
        ("delay:Pull:1:method=Publish", "'method' is given twice"),
        ("drop:Pull:times=1.5", "times must be a whole number, not '1.5'"),
        ("drop:Pull:times=0", "times must be 1 or more"),
        ("drop:Pull:tims=1", "drop has no 'tims'; it takes method, resource, probability, times"),
        ("drop:Pull:times=1,3", "'3' must have the form NAME=VALUE"),
        ("drop:Pull:probability=2", "probability must be above 0 and at most 1"),
        ("black-hole:times=1", "black-hole has no 'times'; it takes nothing"),
    ],
)
def test_the_error_for_an_invalid_fault_line_states_the_problem(text: str, problem: str) -> None:
    """The error has the name and the value. No fault is set."""
    faults = Faults()
    with pytest.raises(ValueError, match=problem):
        FaultRequest.from_text(text).set(faults)
    assert faults.active == ()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "kind must be one of delay, error"),
        ({"kind": 3}, "kind must be one of"),
        ({"kind": "drop", "method": 3}, "method must be text, not 3"),
        ({"kind": "drop", "method": "Pull", "times": "often"}, "times must be a number"),
        ({"kind": "drop", "method": "Pull", "resource": None}, "resource must be text, not None"),
        ({"kind": "delay", "method": "Pull", "seconds": [1]}, "seconds must be a number"),
        ({"kind": "error", "method": "Pull", "code": 14}, "code must be a gRPC status"),
    ],
)
def test_the_error_for_invalid_fault_json_states_the_problem(
    fields: dict[str, Any], problem: str
) -> None:
    """The error is like that for a line."""
    with pytest.raises(ValueError, match=problem):
        FaultRequest.from_json(fields)
