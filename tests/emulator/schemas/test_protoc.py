"""The compiler of Protocol Buffers runs as a process, and may be missing."""

from __future__ import annotations

import importlib.util

import grpc
import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.schemas import protoc
from pullstream_emulator.schemas.protobuf import ProtobufDefinition
from pullstream_protocol.errors import FailedPrecondition, Unavailable
from pullstream_protocol.messages import schema_pb2 as schema
from tests.emulator.broker import PROJECT
from tests.emulator.wire import Wire


def test_compiling_a_protobuf_schema_without_a_compiler_fails_with_failed_precondition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error says how to install it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FailedPrecondition, match=r"pip install 'pullstream\[schemas\]'"):
        ProtobufDefinition.from_source("message M {}")


def test_a_timeout_of_the_protobuf_compiler_raises_the_error_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clients repeat the call. The definition is accepted when the machine is less busy."""
    definition = "syntax = 'proto3'; message Late { string id = 1; }"
    with monkeypatch.context() as busy:
        busy.setattr(protoc, "MAX_SECONDS", 1e-6)
        with pytest.raises(Unavailable, match=r"needed more than 0 s for this .* Try again"):
            ProtobufDefinition.from_source(definition)
    assert ProtobufDefinition.from_source(definition)


def test_create_schema_fails_with_unavailable_while_the_protobuf_compiler_times_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    definition = schema.Schema(
        type=schema.Schema.PROTOCOL_BUFFER,
        definition="syntax = 'proto3'; message LateToo { string id = 1; }",
    )
    request = schema.CreateSchemaRequest(parent=PROJECT, schema=definition, schema_id="late")
    with Emulator() as emulator, Wire(emulator.endpoint) as wire:
        with monkeypatch.context() as busy:
            busy.setattr(protoc, "MAX_SECONDS", 1e-6)
            with pytest.raises(grpc.RpcError) as refused:
                wire.call("CreateSchema", request)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert wire.call("CreateSchema", request).name == f"{PROJECT}/schemas/late"
