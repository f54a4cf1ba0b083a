"""Administration of a running broker: faults and clock by JSON."""

from __future__ import annotations

import json
from typing import Any

import grpc
import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.admin import Admin
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import InvalidArgument, RpcError
from tests.emulator.rest_client import RestClient
from tests.emulator.wire import Wire, data_of

pytestmark = pytest.mark.emulator(rest=True)

START = "2023-11-14T22:13:20Z"


@pytest.fixture
def admin() -> Admin:
    """Return the administration of a broker that serves nobody."""
    emulator = Emulator(clock=ManualClock())
    return Admin(emulator.engine, emulator.clock, emulator.faults)


# ---- faults --------------------------------------------------------------------------------------


def test_the_admin_api_sets_lists_and_lifts_faults(rest: RestClient, wire: Wire) -> None:
    """A request has JSON or the words of the command line. Each fault has an ID."""
    wire.create()
    first = rest.ok("POST", "/v0/admin/faults", {"fault": "error:Pull:ABORTED:times=1"})
    second = rest.ok(
        "POST", "/v0/admin/faults", {"kind": "drop", "method": "Publish", "resource": "orders"}
    )
    listed = rest.ok("GET", "/v0/admin/faults")["faults"]
    assert listed == [first, second]
    assert (first["kind"], first["code"], second["resource"]) == ("error", "ABORTED", "orders")
    with pytest.raises(grpc.RpcError) as raised:
        wire.pull(wait=False)
    assert raised.value.code() is grpc.StatusCode.ABORTED
    assert rest.ok("DELETE", f"/v0/admin/faults/{second['id']}") == {}
    wire.publish("a")
    assert data_of(wire.pull()) == ["a"]


def test_the_admin_api_lifts_all_faults_at_once(rest: RestClient, wire: Wire) -> None:
    """Held calls continue."""
    wire.create()
    rest.ok("POST", "/v0/admin/faults", {"fault": "black-hole"})
    rest.ok("POST", "/v0/admin/faults", {"fault": "delay:*:3600"})
    assert rest.ok("DELETE", "/v0/admin/faults") == {}
    assert rest.ok("GET", "/v0/admin/faults") == {"faults": []}
    wire.publish("a")


def test_the_admin_api_aborts_open_streaming_pulls(rest: RestClient, wire: Wire) -> None:
    """The open streams end. The answer has their number."""
    wire.create()
    stream = wire.stream()
    assert stream.is_quiet()
    fault = rest.ok("POST", "/v0/admin/faults", {"fault": "abort-streams:INTERNAL"})
    assert fault["hits"] == 1
    assert stream.end() is grpc.StatusCode.INTERNAL
    assert rest.ok("GET", "/v0/admin/faults") == {"faults": []}


# ---- clock ---------------------------------------------------------------------------------------


def test_the_admin_api_advances_the_broker_clock(
    rest: RestClient, wire: Wire, clock: ManualClock
) -> None:
    """Everything that was due has happened when the answer arrives."""
    wire.create_with("a")
    wire.pull()
    assert rest.ok("GET", "/v0/admin/clock") == {"now": START, "seconds": clock.now()}
    moved = rest.ok("POST", "/v0/admin/clock:advance", {"seconds": 10.5})
    assert moved == {"now": "2023-11-14T22:13:30.500000Z", "seconds": clock.now()}
    assert data_of(wire.pull(wait=False)) == ["a"]


@pytest.mark.parametrize("seconds", [None, -1, "600", True, float("nan"), float("inf"), 1e12])
def test_the_admin_api_refuses_an_invalid_clock_advance(seconds: Any, admin: Admin) -> None:
    """The clock does not move."""
    body = json.dumps({"seconds": seconds}).encode()
    with pytest.raises(InvalidArgument, match="seconds must be"):
        admin.answer("POST", "/v0/admin/clock:advance", body=body)
    assert admin.answer("GET", "/v0/admin/clock")["now"] == START


# ---- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        ("GET", "/nothing", b"", 404, "There is no administrative request GET /v0/admin/nothing."),
        ("PUT", "/faults", b"", 404, "no administrative request PUT /v0/admin/faults"),
        ("DELETE", "/faults/7", b"", 404, "no fault with the id 7"),
        ("POST", "/faults", b"{", 400, "The body is not JSON"),
        ("POST", "/faults", b"[" * 100_000, 400, "at most 65536 bytes"),
        ("POST", "/faults", b"[" * 60_000, 400, "The body is not JSON"),
        ("POST", "/faults", b"\xff", 400, "The body is not JSON"),
        ("POST", "/faults", b"[]", 400, "The body must be a JSON object."),
        ("POST", "/faults", b"", 400, "kind must be one of delay"),
        ("POST", "/faults", b"{}", 400, "kind must be one of delay"),
        ("POST", "/faults", b'{"fault": 3}', 400, "fault must be text, and the only field"),
        ("POST", "/faults", b'{"fault": "drop:Pull", "times": 1}', 400, "the only field"),
        ("POST", "/faults", b'{"kind": "drop", "method": "Sing"}', 400, "name of an RPC"),
        ("GET", "/backlog", b"", 400, "Invalid resource name given"),
    ],
)
def test_errors_of_the_admin_api_name_the_invalid_value_and_the_allowed_form(
    method: str, path: str, body: bytes, status: int, text: str, admin: Admin
) -> None:
    """The error names the value and the allowed form."""
    with pytest.raises(RpcError) as refused:
        admin.answer(method, f"/v0/admin{path}", body=body)
    assert refused.value.code == status
    assert text in refused.value.message


def test_errors_of_the_admin_api_have_a_json_body_with_a_code_and_a_message(
    rest: RestClient,
) -> None:
    """{"error": {"code", "message"}}, with a code in words."""
    status, content = rest.call("DELETE", "/v0/admin/faults/7")
    assert (status, content["error"]["code"]) == (404, "not_found")
    assert "no fault with the id 7" in content["error"]["message"]
