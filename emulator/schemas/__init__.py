"""Schemas: their revisions, and what they demand of published messages.

Plain objects with one owner, like the engine. Avro is read here; definitions in Protocol Buffers
go through protoc, which the extra `schemas` brings.
"""

from .registry import SchemaRegistry

__all__ = ["SchemaRegistry"]
