"""Handlers: every RPC of the table is served, and no other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc
import pytest

from pullstream_emulator.faults import Faults
from pullstream_emulator.services.handlers import method_handlers
from pullstream_emulator.services.rpc_methods import RpcMethod, UnaryMethod
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.rpcs import PUBLISHER, RPCS, Rpc
from tests.emulator.wire import Wire


@pytest.mark.parametrize("rpc", RPCS, ids=lambda rpc: rpc.method)
def test_every_rpc_of_the_services_has_a_handler_in_the_broker(wire: Wire, rpc: Rpc) -> None:
    """A handler answers an empty request with the name of a missing field."""
    if rpc.method == "StreamingPull":
        stream = wire.stream(
            subscription=None, stream_ack_deadline_seconds=None, protocol_version=None
        )
        assert stream.end() is grpc.StatusCode.INVALID_ARGUMENT
        return
    refused = wire.start(rpc.method, rpc.request()).exception()
    assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_call_of_an_unknown_grpc_method_ends_with_unimplemented(wire: Wire) -> None:
    """The error is that of any gRPC server."""
    call: Any = wire.channel.unary_unary("/google.pubsub.v1.Publisher/Nonsense")
    assert call.future(b"").exception().code() is grpc.StatusCode.UNIMPLEMENTED


class Unknown:
    """A service whose table names an RPC that does not exist."""

    service = PUBLISHER

    def rpc_methods(self) -> Mapping[str, RpcMethod]:
        return {"Nonsense": UnaryMethod(lambda request: request)}


def test_registering_a_grpc_service_with_an_unknown_rpc_name_is_refused() -> None:
    """A misspelled name must not leave an RPC unimplemented without notice."""
    with pytest.raises(ValueError, match=r"unknown RPCs: google\.pubsub\.v1\.Publisher/Nonsense"):
        method_handlers(Unknown(), faults=Faults(ManualClock()))


def test_a_call_of_an_rpc_without_an_implementation_ends_with_unimplemented() -> None:
    """Every RPC has a handler, even if no service implements it."""
    handlers = method_handlers(faults=Faults(ManualClock()))
    assert {(service, name) for service, found in handlers.items() for name in found} == {
        (rpc.service, rpc.method) for rpc in RPCS
    }
