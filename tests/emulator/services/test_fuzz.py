"""Malformed and hostile requests: each gets a clear code, no effect, and no log entry.

PULLSTREAM_FUZZ_EXAMPLES=10000 searches longer than the normal suite, with other examples each time.
"""

from __future__ import annotations

import gc
import os
import random
import socket
import tracemalloc
from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import RPCS, Kind, Rpc
from tests.emulator.broker import PROJECT, SUBSCRIPTION, TOPIC
from tests.emulator.hostile import requests
from tests.emulator.target import REFUSALS, Target, allowed, under_attack
from tests.emulator.target import no_fault_of_ours as no_fault_of_ours

EXAMPLES = int(os.environ.get("PULLSTREAM_FUZZ_EXAMPLES", "0"))
SEARCH = settings(
    max_examples=EXAMPLES or 12,
    derandomize=not EXAMPLES,
    database=None,
    suppress_health_check=list(HealthCheck),
)
RANDOM_EXAMPLES = EXAMPLES or 50

UNARY = [rpc for rpc in RPCS if rpc.kind is Kind.UNARY]
BY_NAME = pytest.mark.parametrize("rpc", UNARY, ids=lambda rpc: rpc.method)


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with under_attack() as target:
        yield target


@BY_NAME
def test_random_bytes_are_refused(target: Target, rpc: Rpc) -> None:
    """Bytes that are no request give InvalidArgument. Valid ones are handled as any request."""
    seed = random.Random(EXAMPLES or rpc.method)
    for _ in range(RANDOM_EXAMPLES):
        data = seed.randbytes(seed.choice([1, 2, 8, 64, 4096]))
        refused = target.refusal(rpc, data)
        try:
            rpc.request.FromString(data)
        except DecodeError:
            assert refused is not None
            assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
        else:
            assert refused is None or refused.code() in allowed(rpc)


@BY_NAME
def test_hostile_requests_are_refused_without_effect(target: Target, rpc: Rpc) -> None:
    """Requests without an error are carried out."""

    @SEARCH
    @given(requests(rpc.request))
    def check(request: Message) -> None:
        target.check_refused(rpc, request.SerializeToString())

    check()


@BY_NAME
def test_requests_cut_short_or_bent_are_refused(target: Target, rpc: Rpc) -> None:
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


def test_hostile_streaming_requests_end_the_stream(target: Target) -> None:
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


def test_a_connection_that_speaks_no_grpc_disturbs_nobody(target: Target) -> None:
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


def test_refused_requests_leave_nothing_behind(target: Target) -> None:
    """This holds for large requests and for many."""
    target.prepare()
    large = "x" * 1_000_000
    hostile: list[tuple[str, Message]] = [
        ("CreateTopic", pubsub.Topic(name=large)),
        ("CreateSubscription", pubsub.Subscription(name=SUBSCRIPTION, topic=large)),
        ("GetTopic", pubsub.GetTopicRequest(topic=f"{PROJECT}/topics/{large}")),
        ("Acknowledge", pubsub.AcknowledgeRequest(subscription=SUBSCRIPTION, ack_ids=[large])),
        (
            "Publish",
            pubsub.PublishRequest(
                topic=TOPIC, messages=[pubsub.PubsubMessage(attributes={"a": large})]
            ),
        ),
        ("ListTopics", pubsub.ListTopicsRequest(project=PROJECT, page_token=large)),
    ]

    def send_all(times: int) -> int:
        """Send the requests, and return the memory in use afterwards, in bytes."""
        for _ in range(times):
            for method, request in hostile:
                assert target.wire.start(method, request).exception() is not None
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        first = send_all(2)
        assert send_all(20) - first < 5_000_000
    finally:
        tracemalloc.stop()
