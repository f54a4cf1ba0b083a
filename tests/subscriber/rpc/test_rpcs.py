"""Unary calls: metadata, errors, retries, and time limits."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import pytest
from google.api_core import exceptions as google
from google.api_core.exceptions import RetryError
from google.api_core.retry import Retry

from pullstream.exceptions import ForkedProcess
from pullstream.rpc.rpcs import Rpcs
from pullstream_protocol import errors
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.clocks import ImpatientClock
from tests.subscriber.scripted_server import Call, ScriptedServer

GET = pubsub.GetTopicRequest(topic="projects/p/topics/t")
DELETE = pubsub.DeleteTopicRequest(topic="projects/p/topics/t")


class Failing:
    """Raises each of these errors once, then answers."""

    def __init__(self, *failures: errors.RpcError) -> None:
        self._failures = list(failures)

    def __call__(self, call: Call) -> pubsub.Topic | None:
        if self._failures:
            raise self._failures.pop(0)
        return pubsub.Topic(name="found") if call.method == "GetTopic" else None


def always_unavailable(call: Call) -> None:
    raise errors.Unavailable("down")


@contextmanager
def rpcs_to(server: ScriptedServer, clock: ManualClock) -> Iterator[Rpcs]:
    with server, grpc.insecure_channel(server.endpoint) as channel:
        yield Rpcs(channel, clock)


def test_a_unary_call_sends_the_routing_header_and_yields_the_servers_response() -> None:
    """The call sends the caller's metadata and the default timeout too."""
    server = ScriptedServer(Failing())
    with rpcs_to(server, ManualClock()) as rpcs:
        assert rpcs.call("GetTopic", GET, metadata=[("x-mine", "1")]) == pubsub.Topic(name="found")
    (call,) = server.calls
    assert call.request == GET
    assert call.metadata["x-goog-request-params"] == "topic=projects/p/topics/t"
    assert call.metadata["x-mine"] == "1"
    assert call.time_remaining == pytest.approx(60, abs=5)


def test_repeated_calls_of_an_rpc_use_one_grpc_stub() -> None:
    with grpc.insecure_channel("localhost:1") as channel:
        rpcs = Rpcs(channel)
        assert rpcs.stub("Pull") is rpcs.stub("Pull")


def test_pullstreams_error_for_a_grpc_error_status_is_a_subclass_of_googles_error() -> None:
    """The error of gRPC says nothing more, and is not shown."""
    server = ScriptedServer(Failing(errors.NotFound("no such topic")))
    with (
        rpcs_to(server, ManualClock()) as rpcs,
        pytest.raises(errors.NotFound, match="no such topic") as caught,
    ):
        rpcs.call("GetTopic", GET)
    assert isinstance(caught.value, google.NotFound)
    assert caught.value.__cause__ is None


def test_a_read_rpc_is_retried_until_it_succeeds() -> None:
    """The bound of the random pauses doubles."""
    clock = ImpatientClock()
    server = ScriptedServer(Failing(*[errors.Unavailable("down"), errors.Aborted("race")] * 3))
    with rpcs_to(server, clock) as rpcs:
        assert rpcs.call("GetTopic", GET).name == "found"
    assert len(server.calls) == 7
    assert all(
        0 <= pause <= bound
        for pause, bound in zip(clock.pauses, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2], strict=True)
    )


def test_a_read_rpc_that_keeps_failing_raises_the_last_error_within_its_timeout() -> None:
    """The error is the one of the last try, and later tries have less time."""
    clock = ImpatientClock()
    server = ScriptedServer(always_unavailable)
    with rpcs_to(server, clock) as rpcs, pytest.raises(errors.Unavailable, match="down"):
        rpcs.call("GetTopic", GET, timeout=20)
    assert len(server.calls) > 2
    assert 10 < clock.monotonic() < 20
    first, last = (server.calls[i].time_remaining or 0.0 for i in (0, -1))
    assert first > 10 > last


@pytest.mark.parametrize(
    "failure", [errors.Unknown("?"), errors.Internal("bug"), errors.NotFound("no")]
)
def test_a_read_rpc_with_a_permanent_error_is_not_retried(failure: errors.RpcError) -> None:
    """Only for UNAVAILABLE and ABORTED may another try help."""
    server = ScriptedServer(Failing(failure))
    with rpcs_to(server, ImpatientClock()) as rpcs, pytest.raises(type(failure)):
        rpcs.call("GetTopic", GET)
    assert len(server.calls) == 1


def test_a_write_rpc_that_fails_is_not_retried() -> None:
    """The server may have carried it out although the reply is an error."""
    server = ScriptedServer(always_unavailable)
    with rpcs_to(server, ImpatientClock()) as rpcs, pytest.raises(errors.Unavailable):
        rpcs.call("DeleteTopic", DELETE)
    assert len(server.calls) == 1


def test_a_failing_read_rpc_with_retry_none_is_sent_only_once() -> None:
    server = ScriptedServer(always_unavailable)
    with rpcs_to(server, ImpatientClock()) as rpcs, pytest.raises(errors.Unavailable):
        rpcs.call("GetTopic", GET, retry=None)
    assert len(server.calls) == 1


def test_a_retry_object_of_google_api_core_applies_to_read_and_write_rpcs() -> None:
    """The predicate accepts pullstream's errors because they are subclasses of Google's."""
    server = ScriptedServer(Failing(errors.Unavailable("down"), errors.Unavailable("down")))
    retry = Retry(initial=0.001, maximum=0.001)
    with rpcs_to(server, ImpatientClock()) as rpcs:
        rpcs.call("DeleteTopic", DELETE, retry=retry)
    assert len(server.calls) == 3


def test_a_call_without_an_answer_within_its_timeout_raises_deadline_exceeded() -> None:
    """The server may take any time."""
    released = threading.Event()

    def answer(call: Call) -> None:
        released.wait(30)

    with rpcs_to(ScriptedServer(answer), ManualClock()) as rpcs:
        try:
            with pytest.raises(errors.DeadlineExceeded):
                rpcs.call("DeleteTopic", DELETE, timeout=0.05)
        finally:
            released.set()


def test_a_call_with_timeout_none_waits_for_the_answer_without_a_limit() -> None:
    """`timeout=None` waits for as long as the server takes."""
    server = ScriptedServer()
    with rpcs_to(server, ManualClock()) as rpcs:
        rpcs.call("DeleteTopic", DELETE, timeout=None)
    # gRPC reports a distant time instead of none.
    assert (server.calls[0].time_remaining or 1e9) > 1e6


def test_a_call_in_a_forked_child_on_a_channel_of_the_parent_raises_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The channel's threads stayed in the parent, so a call would wait for ever.

    The error names the remedy.
    """
    here = os.getpid()
    with grpc.insecure_channel("localhost:1") as channel:
        rpcs = Rpcs(channel)
        rpcs.stub("Pull")
        monkeypatch.setattr(os, "getpid", lambda: here + 1)
        with pytest.raises(ForkedProcess, match=f"made in process {here} .* make a new client"):
            rpcs.stub("Pull")


def test_the_error_after_a_lost_reply_says_that_the_call_may_have_succeeded() -> None:
    """The topic is gone because the first attempt deleted it."""
    server = ScriptedServer(Failing(errors.Unavailable("Socket closed"), errors.NotFound("none")))
    retry = Retry(initial=0.001, maximum=0.001)
    text = r"none \(an earlier attempt may have succeeded; it ended with: 503 Socket closed\)"
    with (
        rpcs_to(server, ImpatientClock()) as rpcs,
        pytest.raises(errors.NotFound, match=text) as raised,
    ):
        rpcs.call("DeleteTopic", DELETE, retry=retry)
    assert raised.value.may_have_succeeded


def test_the_error_of_a_retried_seek_says_that_the_seek_may_have_succeeded() -> None:
    """google-api-core's own error of a retry that gave up has the text, too."""
    server = ScriptedServer(always_unavailable)
    request = pubsub.SeekRequest(subscription="projects/p/subscriptions/s")
    retry = Retry(initial=0.001, maximum=0.001, timeout=1)
    with (
        rpcs_to(server, ImpatientClock()) as rpcs,
        pytest.raises(RetryError, match="an earlier attempt may have succeeded"),
    ):
        rpcs.call("Seek", request, retry=retry)


@pytest.mark.parametrize(
    ("method", "failures"),
    [
        ("DeleteTopic", [errors.NotFound("none")]),
        ("DeleteTopic", [errors.ResourceExhausted("quota"), errors.NotFound("none")]),
        ("GetTopic", [errors.Unavailable("down"), errors.NotFound("none")]),
    ],
)
def test_errors_of_reads_and_of_refused_calls_do_not_say_that_the_call_may_have_succeeded(
    method: str, failures: list[errors.RpcError]
) -> None:
    """The server has refused every attempt, or a success would have changed nothing."""
    server = ScriptedServer(Failing(*failures))
    retry = Retry(initial=0.001, predicate=lambda error: not isinstance(error, errors.NotFound))
    request = DELETE if method == "DeleteTopic" else GET
    with rpcs_to(server, ImpatientClock()) as rpcs, pytest.raises(errors.NotFound) as raised:
        rpcs.call(method, request, retry=retry)
    assert not raised.value.may_have_succeeded
    assert raised.value.message == "none"


def test_the_error_of_an_unsent_call_does_not_say_that_the_call_may_have_succeeded() -> None:
    """There was no connection."""
    with (
        grpc.insecure_channel("127.0.0.1:1") as channel,
        pytest.raises(errors.Unavailable) as raised,
    ):
        Rpcs(channel).call("DeleteTopic", DELETE)
    assert not raised.value.may_have_succeeded


def test_a_feed_append_error_after_a_lost_reply_says_that_the_append_may_have_succeeded() -> None:
    """An append is repeated by default, because it has an idempotency key."""
    server = ScriptedServer(Failing(errors.Unavailable("Socket closed"), errors.NotFound("none")))
    request = feeds.AppendRequest(topic="projects/p/topics/t", idempotency_key="k")
    with (
        rpcs_to(server, ImpatientClock()) as rpcs,
        pytest.raises(errors.NotFound, match="an earlier attempt may have succeeded"),
    ):
        rpcs.call("Append", request)
