"""Schemas: their revisions, and the validation of published messages.

Plain objects with one owner, like the engine. This package parses Avro itself. Definitions in
Protocol Buffers are compiled by protoc, which the extra `schemas` installs.
"""

from .registry import SchemaRegistry

__all__ = ["SchemaRegistry"]
