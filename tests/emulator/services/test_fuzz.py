"""Malformed and hostile requests: each gets a clear code, no effect, and no log entry."""

from __future__ import annotations

import gc
import random
import socket
import tracemalloc
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import RPCS, Kind, Rpc
from tests.emulator.broker import PROJECT, SUBSCRIPTION, TOPIC
from tests.emulator.hostile import EXAMPLES, SEARCH, requests
from tests.emulator.target import METHODS, REFUSALS, Target, allowed, under_attack
from tests.emulator.target import no_fault_of_ours as no_fault_of_ours
from tests.emulator.wire import Wire, data_of

INVALID = grpc.StatusCode.INVALID_ARGUMENT
RANDOM_EXAMPLES = EXAMPLES or 50

UNARY = [rpc for rpc in RPCS if rpc.kind is Kind.UNARY]
BY_NAME = pytest.mark.parametrize("rpc", UNARY, ids=lambda rpc: rpc.method)


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with under_attack() as target:
        yield target


@BY_NAME
def test_a_grpc_request_of_random_bytes_is_refused(target: Target, rpc: Rpc) -> None:
    """Bytes that are no request give InvalidArgument. Valid ones are handled as any request."""
    seed = random.Random(EXAMPLES or rpc.method)
    for _ in range(RANDOM_EXAMPLES):
        data = seed.randbytes(seed.choice([1, 2, 8, 64, 4096]))
        refused = target.refusal(rpc, data)
        try:
            rpc.request.FromString(data)
        except DecodeError:
            assert refused is not None
            assert refused.code() is INVALID
        else:
            assert refused is None or refused.code() in allowed(rpc)


@BY_NAME
def test_hostile_grpc_requests_are_refused_and_change_no_resource(target: Target, rpc: Rpc) -> None:
    """Requests without an error are carried out."""

    @SEARCH
    @given(requests(rpc.request))
    def check(request: Message) -> None:
        target.check_refused(rpc, request.SerializeToString())

    check()


@BY_NAME
def test_truncated_and_corrupted_grpc_requests_are_refused(target: Target, rpc: Rpc) -> None:
    """Some bytes of a request are changed, which also creates invalid UTF-8."""

    @SEARCH
    @given(requests(rpc.request), st.data())
    def check(request: Message, data: st.DataObject) -> None:
        encoded = bytearray(request.SerializeToString())
        for _ in range(data.draw(st.integers(0, 3))):
            if encoded:
                encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(
                    st.sampled_from([0, 0x7F, 0x80, 0xFF])
                )
        target.check_refused(rpc, bytes(encoded[: data.draw(st.integers(0, len(encoded)))]))

    check()


def test_a_hostile_request_on_a_streaming_pull_ends_only_that_stream(target: Target) -> None:
    """The code describes the error. Other streams continue."""

    @SEARCH
    @given(requests(pubsub.StreamingPullRequest), st.booleans(), st.binary(max_size=8))
    def check(request: Message, first: bool, garbage: bytes) -> None:
        target.prepare()
        stream = target.wire.stream(**({"subscription": ""} if first else {}))
        stream.send_raw(request.SerializeToString() + garbage)
        stream.half_close()
        assert stream.end() in REFUSALS | {grpc.StatusCode.OK}

    check()
    assert target.wire.call("GetTopic", pubsub.GetTopicRequest(topic=TOPIC)).name == TOPIC


def test_a_connection_that_does_not_speak_grpc_disturbs_no_grpc_client(target: Target) -> None:
    """The connections send garbage instead of HTTP/2, or nothing."""
    target.prepare()
    silent, *garbled = (
        socket.create_connection((target.emulator.host, target.emulator.port)) for _ in range(20)
    )
    seed = random.Random("sockets")
    for each in garbled:
        each.sendall(seed.randbytes(2000))
    assert target.wire.call("GetTopic", pubsub.GetTopicRequest(topic=TOPIC)).name == TOPIC
    for each in (silent, *garbled):
        each.close()


def test_refused_grpc_requests_leave_no_objects_in_memory(target: Target) -> None:
    """The test sends large requests and for many."""
    target.prepare()
    large = "x" * 1_000_000
    hostile = (
        pubsub.Topic(name=large),
        pubsub.Subscription(name=SUBSCRIPTION, topic=large),
        pubsub.GetTopicRequest(topic=f"{PROJECT}/topics/{large}"),
        pubsub.AcknowledgeRequest(subscription=SUBSCRIPTION, ack_ids=[large]),
        attributes(value=large),
        pubsub.ListTopicsRequest(project=PROJECT, page_token=large),
    )

    def send_all(times: int) -> int:
        """Send the requests, and return the memory in use afterwards, in bytes."""
        for _ in range(times):
            for request in hostile:
                assert target.wire.start(METHODS[type(request)], request).exception() is not None
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        first = send_all(2)
        assert send_all(20) - first < 5_000_000
    finally:
        tracemalloc.stop()


def attributes(count: int = 1, *, key: str = "", value: str = "") -> pubsub.PublishRequest:
    many = {f"{key}{i}": value for i in range(count)}
    messages = [pubsub.PubsubMessage(data=b"x"), pubsub.PubsubMessage(attributes=many)]
    return pubsub.PublishRequest(topic=TOPIC, messages=messages)


def topic(name: str) -> pubsub.Topic:
    return pubsub.Topic(name=f"{PROJECT}/topics/{name}")


def topics(**fields: Any) -> pubsub.ListTopicsRequest:
    return pubsub.ListTopicsRequest(project=PROJECT, **fields)


def new(**fields: Any) -> pubsub.Subscription:
    return pubsub.Subscription(name=f"{SUBSCRIPTION}-2", topic=TOPIC, **fields)


def update(path: str) -> pubsub.UpdateSubscriptionRequest:
    mask = FieldMask(paths=["ack_deadline_seconds", path])
    subscription = pubsub.Subscription(name=SUBSCRIPTION, ack_deadline_seconds=60)
    return pubsub.UpdateSubscriptionRequest(subscription=subscription, update_mask=mask)


NAME = "Invalid resource name given"
RETENTION = "message retention duration"
KNOWN: dict[str, tuple[Message, str]] = {
    "a name of a megabyte": (topic("x" * 1_000_000), NAME),
    "a name that climbs": (
        pubsub.GetTopicRequest(topic=f"{PROJECT}/topics/../../etc/passwd"),
        NAME,
    ),
    "a name with a NUL": (topic("orders\0"), NAME),
    "a hundred and one attributes": (attributes(101), "attribute"),
    "an attribute key of a megabyte": (attributes(key="x" * 1_000_000), "attribute"),
    "an attribute of a megabyte": (attributes(value="x" * 1_000_000), "attribute"),
    "a negative page size": (topics(page_size=-1), "page_size"),
    "a page token of a megabyte": (topics(page_token="x" * 1_000_000), "page_token"),
    "a pull of fewer than no messages": (
        pubsub.PullRequest(subscription=SUBSCRIPTION, max_messages=-(2**31)),
        "max_messages",
    ),
    "a deadline before now": (
        pubsub.ModifyAckDeadlineRequest(
            subscription=SUBSCRIPTION, ack_ids=["x"], ack_deadline_seconds=-1
        ),
        "between 0 and 600",
    ),
    "a retention of less than nothing": (
        new(message_retention_duration=Duration(seconds=-1)),
        RETENTION,
    ),
    "a retention of no duration": (
        new(message_retention_duration=Duration(seconds=2**62)),
        RETENTION,
    ),
    "a backoff of less than nothing": (
        new(retry_policy=pubsub.RetryPolicy(minimum_backoff=Duration(seconds=-1))),
        "minimum_backoff",
    ),
    "a filter of a kilobyte": (new(filter="(" * 1000), "filter"),
    "a filter that is nested to its limit": (new(filter="(" * 256), "filter"),
    "a seek to no time": (
        pubsub.SeekRequest(subscription=SUBSCRIPTION, time=Timestamp(seconds=2**62)),
        "time",
    ),
    "a mask with an unknown field": (update("nonsense"), "'nonsense'"),
    "a mask in the spelling of JSON": (update("pushConfig"), "'pushConfig'"),
    "a mask with what cannot be changed": (update("topic"), "not mutable"),
    "a mask with an empty path": (update(""), "not a known"),
    "a mask with all": (update("*"), "not a known"),
    "no mask": (
        pubsub.UpdateSubscriptionRequest(subscription=pubsub.Subscription(name=SUBSCRIPTION)),
        "update_mask",
    ),
}


@pytest.fixture
def prepared(wire: Wire) -> Wire:
    wire.create_with("data")
    return wire


@pytest.mark.parametrize(("request_", "text"), KNOWN.values(), ids=KNOWN)
def test_an_invalid_grpc_request_gets_a_short_error_that_names_the_problem(
    prepared: Wire, request_: Message, text: str
) -> None:
    """The text is short, and the code is one that no client retries. The state is unchanged."""
    before = state(prepared)
    refused = prepared.start(METHODS[type(request_)], request_).exception()
    assert refused is not None
    assert refused.code() is INVALID, refused.details()
    assert text in refused.details()
    assert len(refused.details()) < 1000
    assert state(prepared) == before
    assert data_of(prepared.pull()) == ["data"]


def state(wire: Wire) -> list[Message]:
    return [
        wire.call("ListTopics", topics()),
        wire.call("ListSubscriptions", pubsub.ListSubscriptionsRequest(project=PROJECT)),
    ]


def test_a_grpc_request_with_invalid_utf_8_is_refused(prepared: Wire) -> None:
    """Such a request cannot be parsed, whichever field has the text."""
    good = pubsub.GetTopicRequest(topic=TOPIC).SerializeToString()
    call = prepared.raw("GetTopic").future(good.replace(b"orders", b"\xff\xfeders"), timeout=20)
    refused = call.exception()
    assert refused.code() is INVALID
    assert "not a valid GetTopicRequest" in refused.details()


def test_a_list_request_with_an_enormous_page_size_returns_all_resources(prepared: Wire) -> None:
    """The page has all existing items."""
    found = prepared.call("ListTopics", topics(page_size=2**31 - 1))
    assert [each.name for each in found.topics] == [TOPIC]


def test_a_pull_with_enormous_max_messages_returns_the_available_messages(prepared: Wire) -> None:
    """The maximum of one response applies."""
    assert data_of(prepared.pull(2**31 - 1)) == ["data"]
