"""Every error of the broker carries its status in the trailer `grpc-status-details-bin`.

With exactly-once delivery, Google's Python client takes an error without this trailer for a
success, and discards a trailer whose code or text differs from those of the call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.rpc import status_pb2

from pullstream_emulator import Emulator
from pullstream_emulator.access import Access, Principal
from pullstream_protocol import errors
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import BY_METHOD
from tests.emulator.broker import SUBSCRIPTION
from tests.emulator.wire import TIMEOUT, Wire

OTHER_PROJECT = "projects/other/subscriptions/billing"


def check_details(call: Any, code: grpc.StatusCode) -> None:
    """Check that a failed call has this code, and details with the same code and text."""
    assert call.code() is code
    details = dict(call.trailing_metadata())[errors.STATUS_DETAILS_KEY]
    status = status_pb2.Status.FromString(details)
    assert (status.code, status.message) == (code.value[0], call.details())


def fail(wire: Wire, path: str, request: bytes, token: str = "") -> Any:
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    call: Any = wire.channel.unary_unary(path)
    failed = call.future(request, timeout=TIMEOUT, metadata=metadata)
    failed.exception()
    return failed


def acknowledge(subscription: str, *ack_ids: str) -> bytes:
    request = pubsub.AcknowledgeRequest(subscription=subscription, ack_ids=ack_ids)
    return request.SerializeToString()


@pytest.mark.parametrize("method", ["Acknowledge", "ModifyAckDeadline"])
@pytest.mark.parametrize(
    ("request_bytes", "code"),
    [
        pytest.param(acknowledge("", "1-a"), grpc.StatusCode.INVALID_ARGUMENT, id="no name"),
        pytest.param(acknowledge(OTHER_PROJECT, "1-a"), grpc.StatusCode.NOT_FOUND, id="missing"),
        pytest.param(
            acknowledge("ä%漢\n" * 1000, "1-a"), grpc.StatusCode.INVALID_ARGUMENT, id="long text"
        ),
        pytest.param(acknowledge(SUBSCRIPTION), grpc.StatusCode.INVALID_ARGUMENT, id="no ack id"),
        pytest.param(
            acknowledge(SUBSCRIPTION, "x" * 600_000),
            grpc.StatusCode.INVALID_ARGUMENT,
            id="too large",
        ),
        pytest.param(
            acknowledge(SUBSCRIPTION, "x" * 5_000), grpc.StatusCode.INVALID_ARGUMENT, id="foreign"
        ),
        pytest.param(b"\xff\xff", grpc.StatusCode.INVALID_ARGUMENT, id="malformed"),
    ],
)
def test_errors_of_refused_grpc_requests_have_error_details(
    wire: Wire, method: str, request_bytes: bytes, code: grpc.StatusCode
) -> None:
    """The details are sent also after a long text was cut."""
    wire.create(enable_exactly_once_delivery=True)
    check_details(fail(wire, BY_METHOD[method].path, request_bytes), code)


@pytest.mark.parametrize(
    "path", ["/google.pubsub.v1.Subscriber/Nonsense", "/no.such.Service/Method"]
)
def test_a_call_of_an_unknown_grpc_method_ends_with_an_error_without_error_details(
    wire: Wire, path: str
) -> None:
    """The refusal of gRPC itself has no details."""
    check_details(fail(wire, path, b""), grpc.StatusCode.UNIMPLEMENTED)


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code.value[0]])
def test_errors_sent_by_faults_have_error_details(
    wire: Wire, emulator: Emulator, code: grpc.StatusCode
) -> None:
    """The fault needs no reason."""
    emulator.faults.error("Acknowledge", errors.BY_CODE[code]("as requested"))
    path = BY_METHOD["Acknowledge"].path
    check_details(fail(wire, path, acknowledge(SUBSCRIPTION, "1-a")), code)


def test_the_error_of_the_lost_reply_fault_has_error_details(
    wire: Wire, emulator: Emulator
) -> None:
    """The call is carried out, and its answer is an error."""
    wire.create_with("a")
    (got,) = wire.pull()
    emulator.faults.lose_reply("Acknowledge", code=grpc.StatusCode.INTERNAL)
    path = BY_METHOD["Acknowledge"].path
    check_details(fail(wire, path, acknowledge(SUBSCRIPTION, got.ack_id)), grpc.StatusCode.INTERNAL)


def test_the_grpc_error_of_an_internal_broker_error_has_error_details(
    wire: Wire, emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    """The function of a fault fails, as a method of the broker would."""

    def broken(_request: Any) -> errors.RpcError:
        raise RuntimeError("a defect")

    emulator.faults.error("Acknowledge", broken)
    path = BY_METHOD["Acknowledge"].path
    check_details(fail(wire, path, acknowledge(SUBSCRIPTION, "1-a")), grpc.StatusCode.INTERNAL)
    assert "failed inside the broker" in caplog.text


@pytest.fixture
def guarded(clock: ManualClock) -> Iterator[Wire]:
    access = Access({"t-test": Principal("tester", frozenset({"test"}))})
    with Emulator(clock=clock, access=access) as emulator, Wire(emulator.endpoint) as wire:
        yield wire


@pytest.mark.parametrize(
    ("token", "subscription", "code"),
    [
        ("", SUBSCRIPTION, grpc.StatusCode.UNAUTHENTICATED),
        ("t-wrong", SUBSCRIPTION, grpc.StatusCode.UNAUTHENTICATED),
        ("t-test", OTHER_PROJECT, grpc.StatusCode.PERMISSION_DENIED),
    ],
)
def test_errors_of_unauthenticated_and_denied_calls_have_error_details(
    guarded: Wire, token: str, subscription: str, code: grpc.StatusCode
) -> None:
    """The calls have no token, a wrong one, or a resource outside its projects."""
    for method in ("Acknowledge", "ModifyAckDeadline"):
        path = BY_METHOD[method].path
        check_details(fail(guarded, path, acknowledge(subscription, "1-a"), token), code)
    check_details(fail(guarded, "/no.such/Method", b""), grpc.StatusCode.UNAUTHENTICATED)


def test_errors_ending_a_streaming_pull_have_error_details(wire: Wire, emulator: Emulator) -> None:
    """The causes are a malformed or invalid request, a fault, a deletion, and a stop."""
    missing = wire.stream()
    missing.end()
    check_details(missing.call, grpc.StatusCode.NOT_FOUND)
    wire.create()
    malformed = wire.stream()
    assert malformed.is_quiet()
    malformed.send_raw(b"\xff\xff")
    malformed.end()
    check_details(malformed.call, grpc.StatusCode.INVALID_ARGUMENT)
    faulted = wire.stream()
    assert faulted.is_quiet()
    emulator.faults.abort_streams(errors.Aborted("as requested"))
    faulted.end()
    check_details(faulted.call, grpc.StatusCode.ABORTED)
    last = wire.stream()
    assert last.is_quiet()
    emulator.stop()
    last.end()
    check_details(last.call, grpc.StatusCode.UNAVAILABLE)


def test_an_acknowledge_error_too_large_for_clients_names_none_of_the_refused_ack_ids(
    wire: Wire,
) -> None:
    """A response above the limit would be rejected at random, so the largest one is repeated."""
    wire.create_with(*map(str, range(150)), enable_exactly_once_delivery=True)
    stale = [received.ack_id for received in wire.pull(150)]
    wire.modify(0, *stale)
    path = BY_METHOD["Acknowledge"].path
    named = {}
    for count in range(85, 120):
        failed = fail(wire, path, acknowledge(SUBSCRIPTION, *stale[:count]))
        check_details(failed, grpc.StatusCode.INVALID_ARGUMENT)
        named[count] = len(errors.error_info(failed.trailing_metadata()).metadata)
    most = max(named.values())
    assert named == {count: count if count <= most else 0 for count in named}
    assert most >= 90
    for _ in range(50):
        failed = fail(wire, path, acknowledge(SUBSCRIPTION, *stale[:most]))
        check_details(failed, grpc.StatusCode.INVALID_ARGUMENT)
