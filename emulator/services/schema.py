"""google.pubsub.v1.SchemaService."""

from __future__ import annotations

import asyncio

from google.protobuf.empty_pb2 import Empty

from emulator.schemas import SchemaRegistry
from emulator.schemas.compiling import compile_schema
from protocol.messages import schema_pb2 as schema


class SchemaService:
    """The registry, under the names of the RPCs.

    Compiling Protocol Buffers takes a while. It is done aside, before a call is carried out.
    """

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self.create_schema = registry.create
        self.get_schema = registry.get
        self.list_schemas = registry.list_schemas
        self.list_schema_revisions = registry.list_revisions
        self.commit_schema = registry.commit
        self.rollback_schema = registry.rollback
        self.delete_schema_revision = registry.delete_revision
        self.validate_schema = registry.validate_schema
        self.validate_message = registry.validate_message
        self.prepare_create_schema = _compile
        self.prepare_commit_schema = _compile
        self.prepare_validate_schema = _compile
        self.prepare_validate_message = _compile

    def delete_schema(self, request: schema.DeleteSchemaRequest) -> Empty:
        self._registry.delete(request.name)
        return Empty()


async def _compile(
    request: schema.CreateSchemaRequest
    | schema.CommitSchemaRequest
    | schema.ValidateSchemaRequest
    | schema.ValidateMessageRequest,
) -> None:
    if request.schema.type == schema.Schema.PROTOCOL_BUFFER:
        await asyncio.to_thread(compile_schema, request.schema)
