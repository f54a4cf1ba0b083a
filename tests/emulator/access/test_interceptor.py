"""Tokens over gRPC: every kind of call is refused before it has any effect."""

from __future__ import annotations

import logging
import queue
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.access import Access, Principal
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import BY_METHOD, RPCS, Kind
from tests.emulator.broker import SUBSCRIPTION, TOPIC
from tests.emulator.wire import TIMEOUT, Wire

FOREIGN_TOPIC = "projects/other/topics/orders"
FOREIGN_SUBSCRIPTION = "projects/other/subscriptions/billing"
TOKENS = {
    "t-test": Principal("tester", frozenset({"test"})),
    "t-root": Principal("root"),
}


@pytest.fixture
def guarded(clock: ManualClock) -> Iterator[Emulator]:
    with Emulator(clock=clock, access=Access(TOKENS)) as emulator:
        yield emulator


class Caller:
    """A client with or without a token."""

    def __init__(self, emulator: Emulator, token: str | None) -> None:
        self._wire = Wire(emulator.endpoint)
        self._metadata = [] if token is None else [("authorization", f"Bearer {token}")]

    def start(self, method: str, request: Any) -> Any:
        """Start the call. Its answers can be read as soon as they arrive."""
        if BY_METHOD[method].kind is Kind.BIDI:
            requests = iter([request.SerializeToString()])
            return self._wire.raw(method)(requests, metadata=self._metadata, timeout=TIMEOUT)
        return self._wire.raw(method).future(
            request.SerializeToString(), metadata=self._metadata, timeout=TIMEOUT
        )

    def call(self, method: str, request: Any) -> Any:
        return self.start(method, request).result()

    def refused(self, method: str, request: Any) -> tuple[str, str]:
        """Return code and text with which a call ends."""
        call = self.start(method, request)
        with pytest.raises(grpc.RpcError):
            next(call) if BY_METHOD[method].kind is Kind.BIDI else call.result()
        return call.code().name, call.details()

    def close(self) -> None:
        self._wire.close()


@pytest.fixture
def callers(guarded: Emulator) -> Iterator[dict[str, Caller]]:
    tokens = {"nobody": None, "liar": "t-wrong", "tester": "t-test", "root": "t-root"}
    made = {name: Caller(guarded, token) for name, token in tokens.items()}
    yield made
    for caller in made.values():
        caller.close()


# ---- tokens --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [rpc.method for rpc in RPCS])
def test_every_grpc_method_refuses_a_call_without_a_valid_token(
    callers: dict[str, Caller], method: str
) -> None:
    """A wrong token is refused, too."""
    request = BY_METHOD[method].request()
    code, text = callers["nobody"].refused(method, request)
    assert (code, text) == (
        "UNAUTHENTICATED",
        "Request is missing required authentication credential.",
    )
    code, text = callers["liar"].refused(method, request)
    assert (code, text) == ("UNAUTHENTICATED", "Request had invalid authentication credentials.")


def test_a_streaming_pull_without_a_valid_token_is_refused_before_its_first_request(
    guarded: Emulator,
) -> None:
    """The broker does not wait for a request."""
    wire = Wire(guarded.endpoint)
    requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    with pytest.raises(grpc.RpcError) as refused:
        next(wire.raw("StreamingPull")(iter(requests.get, None), timeout=TIMEOUT))
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    requests.put(None)
    wire.close()


def test_a_call_of_an_unknown_grpc_method_without_a_token_ends_with_unauthenticated(
    guarded: Emulator,
) -> None:
    """An unknown method is refused like any other. With a token it is UNIMPLEMENTED."""
    channel = grpc.insecure_channel(guarded.endpoint)
    call: Any = channel.unary_unary("/google.pubsub.v1.Publisher/Nothing")
    with pytest.raises(grpc.RpcError) as refused:
        call(b"", timeout=TIMEOUT)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    with pytest.raises(grpc.RpcError) as unknown:
        call(b"", metadata=[("authorization", "Bearer t-root")], timeout=TIMEOUT)
    assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED
    channel.close()


def test_unary_calls_pulls_and_streaming_pulls_succeed_with_a_valid_token(
    callers: dict[str, Caller],
) -> None:
    """The test covers unary calls, a waiting pull, and a stream."""
    tester = callers["tester"]
    tester.call("CreateTopic", pubsub.Topic(name=TOPIC))
    tester.call("CreateSubscription", pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC))
    messages = [pubsub.PubsubMessage(data=b"a")]
    publish = pubsub.PublishRequest(topic=TOPIC, messages=messages)
    pull = tester.start("Pull", pubsub.PullRequest(subscription=SUBSCRIPTION, max_messages=1))
    tester.call("Publish", publish)
    assert [m.message.data for m in pull.result().received_messages] == [b"a"]
    tester.call("Publish", publish)
    stream = tester.start(
        "StreamingPull",
        pubsub.StreamingPullRequest(subscription=SUBSCRIPTION, stream_ack_deadline_seconds=10),
    )
    assert [m.message.data for m in next(stream).received_messages] == [b"a"]
    stream.cancel()


def test_an_undecodable_grpc_request_with_a_valid_token_ends_with_invalid_argument(
    guarded: Emulator,
) -> None:
    """The code is the same as for a broker without tokens."""
    wire = Wire(guarded.endpoint)
    call = wire.raw("Publish").future(
        b"\xff\xff", metadata=[("authorization", "Bearer t-test")], timeout=TIMEOUT
    )
    assert call.exception().code() is grpc.StatusCode.INVALID_ARGUMENT
    wire.close()


# ---- projects ------------------------------------------------------------------------------------

DENIED = ("PERMISSION_DENIED", "User not authorized to perform this action.")


def test_a_call_to_a_project_without_access_is_denied_whether_or_not_the_resource_exists(
    callers: dict[str, Caller],
) -> None:
    """So callers cannot find out which resources exist in other projects."""
    root, tester = callers["root"], callers["tester"]
    request = pubsub.GetTopicRequest(topic=FOREIGN_TOPIC)
    assert tester.refused("GetTopic", request) == DENIED
    root.call("CreateTopic", pubsub.Topic(name=FOREIGN_TOPIC))
    assert tester.refused("GetTopic", request) == DENIED
    assert root.call("GetTopic", request).name == FOREIGN_TOPIC


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("CreateTopic", pubsub.Topic(name="projects/other/topics/new")),
        (
            "Publish",
            pubsub.PublishRequest(topic=FOREIGN_TOPIC, messages=[pubsub.PubsubMessage(data=b"a")]),
        ),
        ("ListTopics", pubsub.ListTopicsRequest(project="projects/other")),
        ("CreateSubscription", pubsub.Subscription(name=SUBSCRIPTION, topic=FOREIGN_TOPIC)),
        ("Pull", pubsub.PullRequest(subscription=FOREIGN_SUBSCRIPTION, max_messages=1)),
        (
            "StreamingPull",
            pubsub.StreamingPullRequest(
                subscription=FOREIGN_SUBSCRIPTION, stream_ack_deadline_seconds=10
            ),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_call_denied_by_access_control_changes_no_resource_of_the_broker(
    guarded: Emulator, callers: dict[str, Caller], method: str, request_: Any
) -> None:
    """The rule holds for every kind of call."""
    callers["root"].call("CreateTopic", pubsub.Topic(name=FOREIGN_TOPIC))
    other = pubsub.Subscription(name=FOREIGN_SUBSCRIPTION, topic=FOREIGN_TOPIC)
    callers["root"].call("CreateSubscription", other)
    assert callers["tester"].refused(method, request_) == DENIED
    listed = pubsub.ListTopicsRequest(project="projects/other")
    assert [t.name for t in callers["root"].call("ListTopics", listed).topics] == [FOREIGN_TOPIC]
    mine = pubsub.ListSubscriptionsRequest(project="projects/test")
    assert not callers["root"].call("ListSubscriptions", mine).subscriptions
    assert guarded.backlog(other.name) == 0


def test_a_call_refused_by_access_control_is_not_logged_as_an_error_of_the_broker(
    callers: dict[str, Caller], caplog: pytest.LogCaptureFixture
) -> None:
    """The log contains no error for it, and no token."""
    with caplog.at_level(logging.DEBUG, "pullstream.emulator"):
        callers["liar"].refused("GetTopic", pubsub.GetTopicRequest(topic=TOPIC))
        callers["tester"].refused("GetTopic", pubsub.GetTopicRequest(topic=FOREIGN_TOPIC))
    assert [(r.levelname, r.message) for r in caplog.records] == [
        ("INFO", "tester was refused access to: other")
    ]
