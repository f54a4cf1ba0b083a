"""google.pubsub.v1.SchemaService."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from pullstream_emulator.offload import LOOP_BUDGET, Budget, BudgetExceeded, Offloaded, ProcessPool
from pullstream_emulator.schemas import SchemaRegistry
from pullstream_emulator.schemas.compiling import compile_schema
from pullstream_emulator.schemas.enforcement import Rules
from pullstream_emulator.schemas.registry import check_succession
from pullstream_protocol.errors import Aborted
from pullstream_protocol.messages import schema_pb2 as schema
from pullstream_protocol.rpcs import SCHEMA_SERVICE

from .rpc_methods import RpcMethod, UnaryMethod
from .schema_checks import MAX_CHECKS


class SchemaService:
    """The schemas.

    Compiling Protocol Buffers is slow, so a thread compiles the definition before the call begins.
    """

    service = SCHEMA_SERVICE

    def __init__(self, registry: SchemaRegistry, processes: ProcessPool) -> None:
        self._registry = registry
        self._processes = processes

    def rpc_methods(self) -> Mapping[str, RpcMethod]:
        """Return the RPCs by name; definitions are compiled before the call begins."""
        return {
            "CreateSchema": UnaryMethod(self._registry.create, prepare=_compile),
            "GetSchema": UnaryMethod(self._registry.get),
            "ListSchemas": UnaryMethod(self._registry.list_schemas),
            "ListSchemaRevisions": UnaryMethod(self._registry.list_revisions),
            "CommitSchema": UnaryMethod(self.commit_schema, prepare=_compile),
            "RollbackSchema": UnaryMethod(self._registry.rollback),
            "DeleteSchemaRevision": UnaryMethod(self._registry.delete_revision),
            "DeleteSchema": UnaryMethod(self.delete_schema),
            "ValidateSchema": UnaryMethod(self._registry.validate_schema, prepare=_compile),
            "ValidateMessage": UnaryMethod(self.validate_message, prepare=_compile),
        }

    def delete_schema(self, request: schema.DeleteSchemaRequest) -> Empty:
        """Delete a schema with all its revisions; topics that use it then refuse messages."""
        self._registry.delete(request.name)
        return Empty()

    def commit_schema(self, request: schema.CommitSchemaRequest) -> schema.Schema:
        """Add a revision to a schema; offload a long comparison with the earlier ones."""
        try:
            return self._registry.commit(request)
        except BudgetExceeded:
            raise Offloaded(self._commit(request)) from None

    @asynccontextmanager
    async def _commit(
        self, request: schema.CommitSchemaRequest
    ) -> AsyncIterator[Callable[[schema.CommitSchemaRequest], schema.Schema]]:
        """Compare a large new definition with the earlier revisions, and commit it."""
        name, size = request.name, request.ByteSize()
        for _ in range(MAX_CHECKS):
            revisions = self._registry.revisions(name)
            await asyncio.to_thread(Rules(name, tuple(revisions), schema.JSON).compile)
            new = compile_schema(request.schema)
            await self._processes.run(size, check_succession, name, new, revisions)
            if revisions == self._registry.revisions(name):
                yield partial(self._registry.commit, checked=revisions)
                return
        raise Aborted(
            f"Other revisions of {name} were committed {MAX_CHECKS} times while this one was "
            "compared with them. Commit it again."
        )

    def validate_message(
        self, request: schema.ValidateMessageRequest
    ) -> schema.ValidateMessageResponse:
        """Check a message against a schema; offload a long check."""
        try:
            return self._registry.validate_message(request, Budget(LOOP_BUDGET))
        except BudgetExceeded:
            raise Offloaded(self._check(request)) from None

    @asynccontextmanager
    async def _check(
        self, request: schema.ValidateMessageRequest
    ) -> AsyncIterator[Callable[[Message], schema.ValidateMessageResponse]]:
        """Check a large message against the schema as it was at the beginning of the call."""
        rules = self._registry.rules_of_message(request)
        await asyncio.to_thread(rules.compile)
        await self._processes.run(
            len(request.message), Rules.check, rules, [request.message], Budget()
        )
        yield lambda _request: schema.ValidateMessageResponse()


async def _compile(
    request: schema.CreateSchemaRequest
    | schema.CommitSchemaRequest
    | schema.ValidateSchemaRequest
    | schema.ValidateMessageRequest,
) -> None:
    if request.schema.type == schema.Schema.PROTOCOL_BUFFER:
        await asyncio.to_thread(compile_schema, request.schema)
