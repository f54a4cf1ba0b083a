"""google.pubsub.v1.SchemaService."""

from __future__ import annotations

from google.protobuf.empty_pb2 import Empty

from emulator.schemas import SchemaRegistry
from protocol.messages import schema_pb2 as schema


class SchemaService:
    """The registry, under the names of the RPCs."""

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

    def delete_schema(self, request: schema.DeleteSchemaRequest) -> Empty:
        self._registry.delete(request.name)
        return Empty()
