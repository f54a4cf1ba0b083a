"""Protocol Buffers schemas for tests."""

from __future__ import annotations

import functools

from pullstream_emulator.schemas.protobuf import ProtobufDefinition


@functools.cache
def compiled(source: str) -> ProtobufDefinition:
    """Return the compiled schema. Compilation takes 0.1 s."""
    return ProtobufDefinition.from_source(source)


def proto3(body: str) -> ProtobufDefinition:
    return compiled(f'syntax = "proto3"; message M {{ {body} }}')


def proto2(body: str) -> ProtobufDefinition:
    return compiled(f'syntax = "proto2"; message M {{ {body} }}')
