"""RPCs that a later version brings: refused in one clear line, and nothing else is."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from protocol.rpcs import RPCS, Rpc
from tests.emulator.wire import Wire

OFFERED = {
    *("CreateTopic", "UpdateTopic", "Publish", "GetTopic", "ListTopics", "ListTopicSubscriptions"),
    *("DeleteTopic", "CreateSubscription", "GetSubscription", "UpdateSubscription"),
    *("ListSubscriptions", "DeleteSubscription", "ModifyAckDeadline", "Acknowledge", "Pull"),
    *("StreamingPull", "ModifyPushConfig"),
}
LATER = [rpc for rpc in RPCS if rpc.method not in OFFERED]


@pytest.mark.parametrize("rpc", LATER, ids=lambda rpc: rpc.method)
def test_an_rpc_of_a_later_version_says_so(wire: Wire, rpc: Rpc) -> None:
    """The line names the RPC; the code tells clients not to try again."""
    refused = wire.start(rpc.method, rpc.request()).exception()
    assert refused.code() is grpc.StatusCode.UNIMPLEMENTED
    assert refused.details() == f"{rpc.method} is not offered by this version of pullstream."


@pytest.mark.parametrize("method", sorted(OFFERED))
def test_every_other_rpc_is_served(wire: Wire, method: str) -> None:
    """To an empty request each answers with what is missing in it."""
    if method == "StreamingPull":
        stream = wire.stream(
            subscription=None, stream_ack_deadline_seconds=None, protocol_version=None
        )
        assert stream.end() is grpc.StatusCode.INVALID_ARGUMENT
        return
    (rpc,) = (rpc for rpc in RPCS if rpc.method == method)
    refused = wire.start(method, rpc.request()).exception()
    assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_an_unknown_method_is_refused(wire: Wire) -> None:
    """As gRPC servers do."""
    call: Any = wire.channel.unary_unary("/google.pubsub.v1.Publisher/Nonsense")
    assert call.future(b"").exception().code() is grpc.StatusCode.UNIMPLEMENTED
