"""gRPC server reflection describes every service by its name on the wire."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from pullstream_emulator import Emulator
from pullstream_emulator.access import Access, Principal
from pullstream_emulator.monitoring.access_log import AccessLogInterceptor
from pullstream_emulator.services.reflection import described
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.rpcs import RPCS, Kind
from tests.emulator.wire import TIMEOUT


def ask(channel: grpc.Channel, token: str = "", **request: Any) -> Any:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    metadata = [("authorization", f"Bearer {token}")] if token else []
    requests = iter([reflection_pb2.ServerReflectionRequest(**request)])
    return next(stub.ServerReflectionInfo(requests, timeout=TIMEOUT, metadata=metadata))


def test_grpc_reflection_lists_and_describes_the_services(clock: ManualClock) -> None:
    """A tool finds the messages of a service, with Google's names."""
    with Emulator(clock=clock) as emulator, grpc.insecure_channel(emulator.endpoint) as channel:
        listed = ask(channel, list_services="").list_services_response.service
        assert {rpc.service for rpc in RPCS} < {each.name for each in listed}
        answer = ask(channel, file_containing_symbol="google.pubsub.v1.Publisher")
        files = [
            descriptor_pb2.FileDescriptorProto.FromString(each)
            for each in answer.file_descriptor_response.file_descriptor_proto
        ]
        messages = {f"{file.package}.{each.name}" for file in files for each in file.message_type}
        assert "google.pubsub.v1.PublishRequest" in messages
        assert not any(name.startswith("pullstream.pubsub.") for name in messages)


SYMBOLS = [
    "google.pubsub.v1.Publisher.Publish",
    "google.pubsub.v1.Subscriber.StreamingPull",
    "google.iam.v1.IAMPolicy.GetIamPolicy",
    "google.pubsub.v1.Topic.name",
    "google.pubsub.v1.Topic.State",
    "grpc.reflection.v1.ServerReflection.ServerReflectionInfo",
    "grpc.reflection.v1alpha.ServerReflection",
    "grpc.reflection.v1.ServerReflectionRequest",
]


@pytest.fixture(scope="module")
def channel() -> Iterator[grpc.Channel]:
    with Emulator() as emulator, grpc.insecure_channel(emulator.endpoint) as channel:
        yield channel


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_grpc_reflection_returns_the_proto_file_that_defines_a_symbol(
    channel: grpc.Channel, symbol: str
) -> None:
    answer = ask(channel, file_containing_symbol=symbol)
    assert answer.file_descriptor_response.file_descriptor_proto, answer


@pytest.mark.parametrize(
    "symbol",
    ["google.pubsub.v1.Publisher.Nothing", "google.pubsub.v1.Nothing.Publish", "Nothing", ""],
)
def test_grpc_reflection_reports_an_unknown_symbol_as_not_found(
    channel: grpc.Channel, symbol: str
) -> None:
    answer = ask(channel, file_containing_symbol=symbol)
    assert answer.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


def test_both_versions_of_grpc_reflection_give_the_same_answers(channel: grpc.Channel) -> None:
    """The messages of both versions have the same bytes."""
    request = reflection_pb2.ServerReflectionRequest(
        file_containing_symbol="google.pubsub.v1.Publisher"
    )
    answers = []
    for version in ("v1", "v1alpha"):
        call = channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        answers.append(next(call(iter([request]), timeout=TIMEOUT)))
    assert answers[0] == answers[1]
    assert answers[0].HasField("file_descriptor_response")


def test_a_grpc_reflection_call_without_a_token_is_refused(clock: ManualClock) -> None:
    """A broker with tokens does not describe itself to strangers."""
    access = Access({"ci": Principal("ci", frozenset({"test"}))})
    with (
        Emulator(clock=clock, access=access) as emulator,
        grpc.insecure_channel(emulator.endpoint) as channel,
    ):
        with pytest.raises(grpc.RpcError) as refused:
            ask(channel, list_services="")
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert ask(channel, "ci", list_services="").list_services_response.service


def test_the_access_log_contains_grpc_reflection_calls(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The interceptor that logs calls works with this service, too."""
    caplog.set_level(logging.INFO, "pullstream.emulator.access")
    with (
        Emulator(interceptors=[AccessLogInterceptor()]) as emulator,
        grpc.insecure_channel(emulator.endpoint) as channel,
    ):
        assert ask(channel, list_services="").list_services_response.service
    assert "ServerReflection/ServerReflectionInfo" in caplog.text


@pytest.mark.parametrize("rpc", RPCS, ids=lambda rpc: rpc.method)
def test_grpc_reflection_describes_every_rpc(rpc: Any) -> None:
    """Requests, responses and streams are those of the table."""
    method = described(RPCS).FindServiceByName(rpc.service).methods_by_name[rpc.method]
    assert method.input_type.name == rpc.request.DESCRIPTOR.name
    assert method.output_type.name == rpc.response.DESCRIPTOR.name
    assert method.client_streaming == (rpc.kind is Kind.BIDI)
    assert method.server_streaming == (rpc.kind is not Kind.UNARY)
