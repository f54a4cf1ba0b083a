"""Unary calls on an event loop: the headers, errors and repetitions of `Rpcs.call`."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from google.api_core.retry import AsyncRetry

from pullstream.exceptions import SubscriberClosed
from pullstream.rpc.async_calls import call_async
from pullstream.rpc.rpcs import Rpcs
from pullstream_protocol import errors
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.clocks import ImpatientClock
from tests.subscriber.rpc.test_rpcs import (
    DELETE,
    GET,
    Failing,
    always_unavailable,
    rpcs_to,
)
from tests.subscriber.scripted_server import Call, ScriptedServer

TIMEOUT = 30


def call(rpcs: Rpcs, method: str, request: Any, **options: Any) -> Any:
    """Make one call on an event loop."""
    return asyncio.run(call_async(rpcs, method, request, **options))


def test_an_async_call_sends_the_callers_metadata_and_yields_the_servers_response() -> None:
    """The caller's metadata and the default timeout are sent, too."""
    server = ScriptedServer(Failing())
    with rpcs_to(server, ManualClock()) as rpcs:
        found = call(rpcs, "GetTopic", GET, metadata=[("x-mine", "1")])
    assert found == pubsub.Topic(name="found")
    (sent,) = server.calls
    assert sent.metadata["x-goog-request-params"] == "topic=projects/p/topics/t"
    assert sent.metadata["x-mine"] == "1"
    assert sent.time_remaining == pytest.approx(60, abs=5)


def test_an_async_read_call_is_retried_until_it_succeeds() -> None:
    """The bound of the random pauses doubles."""
    clock = ImpatientClock()
    server = ScriptedServer(Failing(*[errors.Unavailable("down"), errors.Aborted("race")] * 3))
    with rpcs_to(server, clock) as rpcs:
        assert call(rpcs, "GetTopic", GET).name == "found"
    assert len(server.calls) == 7
    assert len(clock.pauses) == 6
    assert all(pause <= 0.1 * 2**n for n, pause in enumerate(clock.pauses))


def test_an_async_read_call_that_keeps_failing_raises_the_last_error_within_its_timeout() -> None:
    """The error is the error of the last attempt."""
    clock = ImpatientClock()
    server = ScriptedServer(always_unavailable)
    with rpcs_to(server, clock) as rpcs, pytest.raises(errors.Unavailable, match="down"):
        call(rpcs, "GetTopic", GET, timeout=20)
    assert len(server.calls) > 2
    assert 10 < clock.monotonic() < 20


@pytest.mark.parametrize(
    ("method", "request_", "options"),
    [("DeleteTopic", DELETE, {}), ("GetTopic", GET, {"retry": None})],
)
def test_async_write_calls_and_async_calls_with_retry_none_are_sent_only_once(
    method: str, request_: Any, options: dict[str, Any]
) -> None:
    """A write may have been carried out although the reply says otherwise."""
    server = ScriptedServer(always_unavailable)
    with rpcs_to(server, ImpatientClock()) as rpcs, pytest.raises(errors.Unavailable):
        call(rpcs, method, request_, **options)
    assert len(server.calls) == 1


def test_a_retry_policy_passed_to_an_async_call_is_applied() -> None:
    """The policy wraps the attempts of writes, too."""
    server = ScriptedServer(Failing(errors.Unavailable("down"), errors.Unavailable("down")))
    with rpcs_to(server, ImpatientClock()) as rpcs:
        call(rpcs, "DeleteTopic", DELETE, retry=AsyncRetry(initial=0.001, maximum=0.001))
    assert len(server.calls) == 3


def test_the_error_of_an_unimplemented_async_call_recommends_pullstreams_broker() -> None:
    """The text names pullstream's broker."""
    server = ScriptedServer(Failing(errors.Unimplemented("unknown service")))
    with (
        rpcs_to(server, ManualClock()) as rpcs,
        pytest.raises(errors.Unimplemented, match="pullstream's broker"),
    ):
        call(rpcs, "GetFeed", feeds.GetFeedRequest(topic="projects/p/topics/t"))


def test_cancelling_an_asyncio_task_cancels_its_call_on_the_server() -> None:
    """The task ends while the server has not answered."""
    arrived, released = threading.Event(), threading.Event()

    def answer(_call: Call) -> None:
        arrived.set()
        released.wait(TIMEOUT)

    async def scenario(rpcs: Rpcs) -> None:
        task = asyncio.create_task(call_async(rpcs, "GetTopic", GET))
        await asyncio.to_thread(arrived.wait, TIMEOUT)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, TIMEOUT)
        assert not released.is_set()

    with rpcs_to(ScriptedServer(answer), ManualClock()) as rpcs:
        try:
            asyncio.run(scenario(rpcs))
        finally:
            released.set()


def test_an_async_call_of_a_closed_client_raises_the_same_error_as_a_blocking_call() -> None:
    """A blocking call raises the same error."""
    server = ScriptedServer()
    with rpcs_to(server, ManualClock()) as rpcs:
        pass
    with pytest.raises(SubscriberClosed, match="GetTopic"):
        call(rpcs, "GetTopic", GET)


def test_an_async_error_after_a_lost_reply_says_that_the_call_may_have_succeeded() -> None:
    """The error of a blocking call says the same."""
    server = ScriptedServer(Failing(errors.Unavailable("Socket closed"), errors.NotFound("none")))
    request = feeds.AppendRequest(topic="projects/p/topics/t", idempotency_key="k")
    with (
        rpcs_to(server, ImpatientClock()) as rpcs,
        pytest.raises(errors.NotFound, match="an earlier attempt may have") as raised,
    ):
        call(rpcs, "Append", request)
    assert raised.value.may_have_succeeded
