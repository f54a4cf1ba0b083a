"""The compiler of Protocol Buffers runs as a process, and may be missing."""

from __future__ import annotations

import importlib.util

import pytest

from pullstream_emulator.schemas import protoc
from pullstream_emulator.schemas.definition import BadDefinition
from pullstream_emulator.schemas.protobuf import ProtobufDefinition
from pullstream_protocol.errors import FailedPrecondition


def test_without_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says how to install it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FailedPrecondition, match=r"pip install 'pullstream\[schemas\]'"):
        ProtobufDefinition.from_source("message M {}")


def test_a_compiler_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed, and its definition is refused."""
    monkeypatch.setattr(protoc, "PATIENCE", 1e-6)
    with pytest.raises(BadDefinition, match="compiling it takes more than"):
        ProtobufDefinition.from_source("message M {}")
