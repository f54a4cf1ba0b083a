"""The SchemaService: schemas of topics, and their revisions.

The methods take requests, keywords and call options like the methods of `pullstream.admin`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from google.protobuf.empty_pb2 import Empty

from pullstream_protocol.messages import schema_pb2 as pb

from .rpc.base_client import BaseClient
from .rpc.paging import Pager
from .rpc.rpcs import CallOptions, ListOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

Dict = Mapping[str, Any]


class SchemaServiceClient(BaseClient):
    """Manages schemas and their revisions. Thread-safe."""

    def create_schema(
        self,
        request: pb.CreateSchemaRequest | Dict | None = None,
        *,
        parent: str | None = None,
        schema: pb.Schema | Dict | None = None,
        schema_id: str | None = None,
        **options: Unpack[CallOptions],
    ) -> pb.Schema:
        """Create a schema.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            parent: The project, `projects/P`.
            schema: Its `type` ("AVRO" or "PROTOCOL_BUFFER") and `definition`.
            schema_id: Id of the schema, the last part of its name.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Returns:
            The first revision of the schema.

        Raises:
            AlreadyExists: A schema of this name exists.
            InvalidArgument: The definition is not valid.
        """
        fields = {"parent": parent, "schema": schema, "schema_id": schema_id}
        return self._call("CreateSchema", pb.Schema, request, options, **fields)

    def get_schema(
        self,
        request: pb.GetSchemaRequest | Dict | None = None,
        *,
        name: str | None = None,
        **options: Unpack[CallOptions],
    ) -> pb.Schema:
        """Return a schema with its definition.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            name: `projects/P/schemas/S` for the newest revision, or `projects/P/schemas/S@R`.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Raises:
            NotFound: The schema or the revision does not exist.
        """
        return self._call("GetSchema", pb.Schema, request, options, name=name)

    def list_schemas(
        self,
        request: pb.ListSchemasRequest | Dict | None = None,
        *,
        parent: str | None = None,
        **options: Unpack[ListOptions],
    ) -> Pager[pb.Schema]:
        """List the newest revisions of the schemas of a project.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            parent: The project, `projects/P`.
            **options: `page_size`, `page_token`, `retry`, `timeout` and `metadata`; see
                `ListOptions` and `CallOptions`.

        Returns:
            An iterable of `Schema`, without definitions unless the request asks for them.
        """
        return self._list("ListSchemas", "schemas", request, options, parent=parent)

    def list_schema_revisions(
        self,
        request: pb.ListSchemaRevisionsRequest | Dict | None = None,
        *,
        name: str | None = None,
        **options: Unpack[ListOptions],
    ) -> Pager[pb.Schema]:
        """List the revisions of a schema, the newest first.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            name: Full name of the schema, `projects/P/schemas/S`.
            **options: `page_size`, `page_token`, `retry`, `timeout` and `metadata`; see
                `ListOptions` and `CallOptions`.

        Returns:
            An iterable of `Schema`, without definitions unless the request asks for them.
        """
        return self._list("ListSchemaRevisions", "schemas", request, options, name=name)

    def commit_schema(
        self,
        request: pb.CommitSchemaRequest | Dict | None = None,
        *,
        name: str | None = None,
        schema: pb.Schema | Dict | None = None,
        **options: Unpack[CallOptions],
    ) -> pb.Schema:
        """Add a revision to a schema.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            name: Full name of the schema, `projects/P/schemas/S`.
            schema: The same name, the `type`, and the new `definition`.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Returns:
            The new revision.

        Raises:
            InvalidArgument: The definition is not valid, or not compatible with the older ones.
        """
        return self._call("CommitSchema", pb.Schema, request, options, name=name, schema=schema)

    def rollback_schema(
        self,
        request: pb.RollbackSchemaRequest | Dict | None = None,
        *,
        name: str | None = None,
        revision_id: str | None = None,
        **options: Unpack[CallOptions],
    ) -> pb.Schema:
        """Add a revision that is a copy of an older one.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            name: Full name of the schema, `projects/P/schemas/S`.
            revision_id: The revision to copy.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Returns:
            The new revision.
        """
        fields = {"name": name, "revision_id": revision_id}
        return self._call("RollbackSchema", pb.Schema, request, options, **fields)

    def delete_schema_revision(
        self,
        request: pb.DeleteSchemaRevisionRequest | Dict | None = None,
        *,
        name: str | None = None,
        **options: Unpack[CallOptions],
    ) -> pb.Schema:
        """Delete one revision of a schema.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            name: Name of the revision, `projects/P/schemas/S@R`.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Returns:
            The deleted revision.
        """
        return self._call("DeleteSchemaRevision", pb.Schema, request, options, name=name)

    def delete_schema(
        self,
        request: pb.DeleteSchemaRequest | Dict | None = None,
        *,
        name: str | None = None,
        **options: Unpack[CallOptions],
    ) -> None:
        """Delete a schema with all its revisions. Its topics then refuse messages.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            name: Full name of the schema, `projects/P/schemas/S`.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.
        """
        self._call("DeleteSchema", Empty, request, options, name=name)

    def validate_schema(
        self,
        request: pb.ValidateSchemaRequest | Dict | None = None,
        *,
        parent: str | None = None,
        schema: pb.Schema | Dict | None = None,
        **options: Unpack[CallOptions],
    ) -> pb.ValidateSchemaResponse:
        """Check a definition without storing it.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            parent: The project, `projects/P`.
            schema: Its `type` and `definition`.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Returns:
            An empty response.

        Raises:
            InvalidArgument: The definition is not valid.
        """
        fields = {"parent": parent, "schema": schema}
        return self._call("ValidateSchema", pb.ValidateSchemaResponse, request, options, **fields)

    def validate_message(
        self,
        request: pb.ValidateMessageRequest | Dict | None = None,
        **options: Unpack[CallOptions],
    ) -> pb.ValidateMessageResponse:
        """Check a message against a schema without publishing it.

        Args:
            request: The `parent`, the `name` of a schema or a `schema`, the `message` (bytes) and
                its `encoding` ("JSON" or "BINARY").
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Returns:
            An empty response.

        Raises:
            InvalidArgument: The message does not match the schema.
            NotFound: The schema does not exist.
        """
        return self._call("ValidateMessage", pb.ValidateMessageResponse, request, options)
