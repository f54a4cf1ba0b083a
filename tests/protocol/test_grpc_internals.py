"""The private interfaces of gRPC are those with which grpc_internals.py works."""

from __future__ import annotations

import inspect
import queue
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import _channel, _server
from grpc._cython import cygrpc  # type: ignore[attr-defined]  # not in its stubs

from pullstream_protocol.errors import NotFound
from pullstream_protocol.grpc_internals import (
    DeferredReply,
    SegregatedCall,
    can_park,
    reads_directly,
)
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

# The oldest and the newest release with which all tests have been run. With a newer one, run the
# tests of this file, tests/subscriber/rpc/test_calls.py and tests/protocol/channels, and note it.
OLDEST = (1, 71)
NEWEST = (1, 85)

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


@contextmanager
def serving(method: str, handler: grpc.RpcMethodHandler[Any, Any]) -> Iterator[grpc.Channel]:
    """A channel to a server with one method, "/test/" and its name."""
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("test", {method: handler})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    server.stop(None).wait(TIMEOUT)


@contextmanager
def deferring() -> Iterator[tuple[grpc.Channel, queue.SimpleQueue[DeferredReply]]]:
    """A channel to a server whose replies to "/test/Wait" are given to the test."""
    waiting: queue.SimpleQueue[DeferredReply] = queue.SimpleQueue()

    def handle(request: bytes, context: grpc.ServicerContext, send: Any) -> None:
        assert can_park(context)
        waiting.put(DeferredReply(context))

    handle.experimental_non_blocking = True  # type: ignore[attr-defined]
    with serving("Wait", grpc.unary_stream_rpc_method_handler(handle)) as channel:
        yield channel, waiting


def begin_wait(channel: grpc.Channel) -> Any:
    stub: Any = channel.unary_unary("/test/Wait")
    return stub.future(b"")


# ---- pins ----------------------------------------------------------------------------------------


def test_the_installed_grpc_release_is_in_the_list_of_tested_releases() -> None:
    """A newer one may have changed its private parts."""
    release = tuple(map(int, grpc.__version__.split(".")[:2]))
    assert OLDEST <= release <= NEWEST


def test_the_oldest_allowed_grpc_release_is_in_the_list_of_tested_releases() -> None:
    """The package's requirement says so."""
    oldest = re.search(r'"grpcio>=(\d+)\.(\d+)', PYPROJECT.read_text())
    assert oldest is not None
    assert tuple(map(int, oldest.groups())) == OLDEST


@pytest.mark.parametrize(
    "name",
    [
        "SendInitialMetadataOperation",
        "SendMessageOperation",
        "SendCloseFromClientOperation",
        "ReceiveInitialMetadataOperation",
        "ReceiveMessageOperation.message",
        "ReceiveStatusOnClientOperation.code",
        "ReceiveStatusOnClientOperation.details",
        "ReceiveStatusOnClientOperation.trailing_metadata",
        "SendMessageOperation.type",
        "ReceiveMessageOperation.type",
        "ReceiveStatusOnClientOperation.type",
        "OperationType.receive_message",
        "OperationType.receive_status_on_client",
        "OperationType.send_message",
        "StatusCode.cancelled",
        "Channel.segregated_call",
        "SegregatedCall.operate",
        "SegregatedCall.cancel",
        "SegregatedCall.next_event",
        "BatchOperationEvent.batch_operations",
    ],
)
def test_the_installed_grpc_client_has_the_private_parts_that_segregated_call_uses(
    name: str,
) -> None:
    """SegregatedCall uses it."""
    assert attrgetter(name)(cygrpc) is not None


def test_a_plain_grpc_channel_is_distinguished_from_an_intercepted_channel() -> None:
    """Other channels must see their calls."""
    with grpc.insecure_channel("localhost:1") as channel:
        assert isinstance(channel, _channel.Channel)
        assert isinstance(channel._channel, cygrpc.Channel)
        assert reads_directly(channel)
        assert not reads_directly(grpc.intercept_channel(channel, _Passing()))


def test_the_installed_grpc_server_has_the_private_functions_that_deferred_reply_uses() -> None:
    """DeferredReply calls it as gRPC does."""
    parameters = ["rpc_event", "state", "serialized_response"]
    assert list(inspect.signature(_server._status).parameters) == parameters
    parameters = ["rpc_event", "state", "request_deserializer"]
    assert list(inspect.signature(_server._Context).parameters) == parameters


# ---- behaviour -----------------------------------------------------------------------------------


class _Passing(grpc.UnaryUnaryClientInterceptor):
    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(details, request)


def echo(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
    yield from requests
    context.set_trailing_metadata((("k", "v"),))
    context.abort(grpc.StatusCode.NOT_FOUND, "none left")


def test_a_segregated_call_returns_one_event_for_each_operation_and_the_status_last() -> None:
    """The opening's operations as well. The last event has the status."""
    with serving("Echo", grpc.stream_stream_rpc_method_handler(echo)) as channel:
        call = SegregatedCall(channel, "/test/Echo", b"one", ())
        under_way = call.OPENING_OPERATIONS
        responses: list[bytes | None] = []
        under_way += call.receive()
        sent, status = 0, None
        while under_way:
            response, ended, is_sent = call.next_event()
            under_way -= 1
            sent += is_sent
            status = ended or status
            if response is not None:
                responses.append(response)
                under_way += call.send(b"two") if len(responses) == 1 else call.half_close()
                under_way += call.receive()
    assert responses == [b"one", b"two"]
    assert sent == 2
    assert status is not None
    assert (status.code, status.details) == (grpc.StatusCode.NOT_FOUND.value[0], "none left")
    assert ("k", "v") in [tuple(item) for item in status.trailing_metadata]


def test_a_cancelled_segregated_call_returns_an_event_for_every_started_operation() -> None:
    """The call is freed after the last operation."""
    with serving("Echo", grpc.stream_stream_rpc_method_handler(echo)) as channel:
        call = SegregatedCall(channel, "/test/Echo", b"one", ())
        call.cancel()
        events = [call.next_event() for _ in range(call.OPENING_OPERATIONS)]
        assert not call.receive()
    (status,) = [status for _, status, _ in events if status is not None]
    assert status.code == grpc.StatusCode.CANCELLED.value[0]


def test_a_deferred_reply_to_a_grpc_call_may_be_sent_by_another_thread() -> None:
    """The handler has returned long before."""
    with deferring() as (channel, waiting):
        call = begin_wait(channel)
        reply = waiting.get(timeout=TIMEOUT)
        assert reply.is_active
        reply.answer(b"done")
        assert call.result(TIMEOUT) == b"done"
        assert not reply.is_active


def test_a_deferred_reply_may_end_the_grpc_call_with_an_error() -> None:
    """The error has its code and its text."""
    with deferring() as (channel, waiting):
        call = begin_wait(channel)
        waiting.get(timeout=TIMEOUT).fail(NotFound("no such thing"))
        assert call.code() is grpc.StatusCode.NOT_FOUND
        assert call.details() == "no such thing"


def test_a_deferred_reply_to_a_cancelled_grpc_call_has_no_effect() -> None:
    """The caller is gone."""
    with deferring() as (channel, waiting):
        call = begin_wait(channel)
        reply = waiting.get(timeout=TIMEOUT)
        call.cancel()
        eventually(lambda: not reply.is_active)
        reply.answer(b"done")
        reply.fail(NotFound("no such thing"))
