"""Every RPC of the table is served, and no other."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from protocol.rpcs import RPCS, Rpc
from tests.emulator.wire import Wire


@pytest.mark.parametrize("rpc", RPCS, ids=lambda rpc: rpc.method)
def test_every_rpc_is_served(wire: Wire, rpc: Rpc) -> None:
    """To an empty request each answers with what is missing in it."""
    if rpc.method == "StreamingPull":
        stream = wire.stream(
            subscription=None, stream_ack_deadline_seconds=None, protocol_version=None
        )
        assert stream.end() is grpc.StatusCode.INVALID_ARGUMENT
        return
    refused = wire.start(rpc.method, rpc.request()).exception()
    assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_an_unknown_method_is_refused(wire: Wire) -> None:
    """As gRPC servers do."""
    call: Any = wire.channel.unary_unary("/google.pubsub.v1.Publisher/Nonsense")
    assert call.future(b"").exception().code() is grpc.StatusCode.UNIMPLEMENTED
