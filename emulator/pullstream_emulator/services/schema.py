"""google.pubsub.v1.SchemaService."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pullstream_emulator.schemas import SchemaRegistry
from pullstream_emulator.schemas.compiling import compile_schema
from pullstream_emulator.schemas.registry import check_succession
from pullstream_protocol.errors import Aborted
from pullstream_protocol.messages import schema_pb2 as schema
from pullstream_protocol.rpcs import SCHEMA_SERVICE

from .rpc_methods import RpcMethod, UnaryMethod, on_field
from .schema_checks import MAX_CHECKS, CheckThreads


class SchemaService:
    """The schemas.

    Slow work is done on a thread before the call: compilation of Protocol Buffers, checks of large
    messages, and comparisons of large definitions.
    """

    service = SCHEMA_SERVICE

    def __init__(self, registry: SchemaRegistry, threads: CheckThreads) -> None:
        self._registry = registry
        self._threads = threads

    def rpc_methods(self) -> Mapping[str, RpcMethod]:
        """Return the RPCs by name."""
        return {
            "CreateSchema": UnaryMethod(self._registry.create, prepare=self._compile),
            "GetSchema": UnaryMethod(self._registry.get),
            "ListSchemas": UnaryMethod(self._registry.list_schemas),
            "ListSchemaRevisions": UnaryMethod(self._registry.list_revisions),
            "CommitSchema": UnaryMethod(self._registry.commit, prepare=self._compare),
            "RollbackSchema": UnaryMethod(self._registry.rollback),
            "DeleteSchemaRevision": UnaryMethod(self._registry.delete_revision),
            "DeleteSchema": on_field("name", self._registry.delete),
            "ValidateSchema": UnaryMethod(self._registry.validate_schema, prepare=self._compile),
            "ValidateMessage": UnaryMethod(self.validate_message, prepare=self._check_message),
        }

    def validate_message(
        self, request: schema.ValidateMessageRequest, *, is_checked: bool = False
    ) -> schema.ValidateMessageResponse:
        """Check a message against a schema; a large message is checked on a thread before."""
        if is_checked:
            return schema.ValidateMessageResponse()
        return self._registry.validate_message(request)

    async def _compile(
        self,
        request: schema.CreateSchemaRequest
        | schema.CommitSchemaRequest
        | schema.ValidateSchemaRequest,
    ) -> dict[str, Any]:
        """Compile Protocol Buffers. The call gets the result from the cache of the compiler."""
        if request.schema.type == schema.Schema.PROTOCOL_BUFFER:
            await self._threads.run(compile_schema, request.schema)
        return {}

    async def _compare(self, request: schema.CommitSchemaRequest) -> dict[str, Any]:
        """Compile a new definition, and compare a large one with the earlier revisions."""
        await self._compile(request)
        name = request.name
        for _ in range(MAX_CHECKS):
            if self._registry.is_quick_commit(request):
                return {}
            revisions = self._registry.revisions(name)
            new = compile_schema(request.schema)
            await self._threads.run(check_succession, name, new, revisions)
            if revisions == self._registry.revisions(name):
                return {"checked": revisions}
        raise Aborted(
            f"Other revisions of {name} were committed {MAX_CHECKS} times while this one was "
            "compared with them. Commit it again."
        )

    async def _check_message(self, request: schema.ValidateMessageRequest) -> dict[str, Any]:
        """Check a large message against the schema as it is now."""
        rules = self._registry.rules_of_message(request)
        if rules.is_quick([request.message]):
            return {}
        await self._threads.run(rules.check, [request.message])
        return {"is_checked": True}
