"""The revisions of one schema."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from copy import deepcopy

from pullstream_protocol.messages import schema_pb2 as pb

from .compiling import compile_schema
from .definition import Definition

# Number of deleted revisions that keep their position. Topics may still name them as bounds.
MAX_DELETED = 100


class Revision:
    """One revision of a schema.

    Args:
        schema: The revision as clients see it.
        definition: The compiled definition; None: it is compiled when it is needed.
    """

    def __init__(self, schema: pb.Schema, definition: Definition | None = None) -> None:
        self.schema = schema
        self._definition = definition

    @property
    def definition(self) -> Definition:
        """The compiled definition; compiled at the first access, on any thread."""
        if self._definition is None:
            self._definition = compile_schema(self.schema)
        return self._definition

    @property
    def needs_protoc(self) -> bool:
        """Whether the definition must still be compiled by protoc, which takes 0.1 s or more."""
        has_source = self.schema.type == pb.Schema.PROTOCOL_BUFFER and bool(self.schema.definition)
        return has_source and self._definition is None

    @property
    def id(self) -> str:
        """The revision's id, unique within its schema."""
        return self.schema.revision_id

    @property
    def is_deleted(self) -> bool:
        """Whether it was deleted, so that only its ID and name are left."""
        return self.schema.type == pb.Schema.TYPE_UNSPECIFIED


class RevisionHistory:
    """The revisions of a schema, oldest first.

    Deleted revisions keep their position, so that the range between two bounds stays the same.
    """

    def __init__(self, name: str, schemas: Iterable[pb.Schema] = ()) -> None:
        self.name = name
        self._all = [Revision(schema) for schema in schemas]

    @classmethod
    def from_bytes(cls, name: str, value: bytes) -> RevisionHistory:
        """Restore a history from the result of `to_bytes`; definitions are compiled when needed."""
        return cls(name, pb.ListSchemaRevisionsResponse.FromString(value).schemas)

    def to_bytes(self) -> bytes:
        """Return all revisions, serialized, with the positions of deleted ones."""
        schemas = [revision.schema for revision in self._all]
        return pb.ListSchemaRevisionsResponse(schemas=schemas).SerializeToString()

    @property
    def by_position(self) -> dict[int, Revision]:
        """The revisions that are not deleted, oldest first, by positions that survive deletions."""
        return {p: revision for p, revision in enumerate(self._all) if not revision.is_deleted}

    @property
    def revisions(self) -> list[Revision]:
        """The revisions that are not deleted, oldest first."""
        return list(self.by_position.values())

    @property
    def head(self) -> Revision:
        """The newest revision that is not deleted."""
        return self.revisions[-1]

    def find(self, revision_id: str) -> Revision | None:
        """Return the revision with this id; None if there is none or it was deleted."""
        return next((revision for revision in self.revisions if revision.id == revision_id), None)

    def add(self, schema: pb.Schema, definition: Definition, now: float) -> Revision:
        """Append a copy of a schema as a new revision, and return it.

        Args:
            schema: The schema.
            definition: Its compiled definition.
            now: The wall time in seconds.
        """
        new = deepcopy(schema)
        new.name = self.name
        new.revision_id = self._new_id()
        new.revision_create_time.FromMicroseconds(int(now * 1_000_000))
        self._all.append(Revision(new, definition))
        return self._all[-1]

    def delete(self, revision: Revision) -> None:
        """Delete a revision; positions are kept for at most MAX_DELETED deleted revisions."""
        position = self._all.index(revision)
        self._all[position] = Revision(pb.Schema(name=self.name, revision_id=revision.id))
        deleted = [other for other in self._all if other.is_deleted]
        if len(deleted) > MAX_DELETED:
            self._all.remove(deleted[0])

    def between(self, first_id: str, last_id: str) -> list[Revision]:
        """Return the revisions from one to another, newest first. "" leaves an end open.

        A bound that was deleted long ago and is forgotten counts as older than all revisions.
        """
        ids = [revision.id for revision in self._all]
        first = ids.index(first_id) if first_id in ids else 0
        last = ids.index(last_id) if last_id in ids else -1
        stop = last + 1 if last_id else len(ids)
        found = [revision for revision in self._all[first:stop] if not revision.is_deleted]
        return found[::-1]

    def in_order(self, first_id: str, last_id: str) -> bool:
        """Return whether the first revision is not newer than the second one."""
        ids = [revision.id for revision in self._all]
        return ids.index(first_id) <= ids.index(last_id)

    def _new_id(self) -> str:
        used = {revision.id for revision in self._all}
        while (new_id := secrets.token_hex(4)) in used:
            pass
        return new_id
