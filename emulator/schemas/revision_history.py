"""The revisions of one schema."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from copy import deepcopy

from protocol.messages import schema_pb2 as pb

from .compiling import compile_schema
from .definition import Definition

# How many deleted revisions keep their place. Topics may still name them as bounds.
MAX_DELETED = 100


class Revision:
    """One revision; `schema` is all that is told of it.

    `definition` is what it was compiled to, if it was: otherwise that happens when it is needed.
    """

    def __init__(self, schema: pb.Schema, definition: Definition | None = None) -> None:
        self.schema = schema
        self._definition = definition

    @property
    def definition(self) -> Definition:
        if self._definition is None:
            self._definition = compile_schema(self.schema)
        return self._definition

    @property
    def id(self) -> str:
        return self.schema.revision_id

    @property
    def is_deleted(self) -> bool:
        """Only id and name are left of it."""
        return self.schema.type == pb.Schema.TYPE_UNSPECIFIED


class RevisionHistory:
    """Revisions from the oldest to the newest.

    Deleted ones keep their place, so that the range between two bounds stays what it was.
    """

    def __init__(self, name: str, schemas: Iterable[pb.Schema] = ()) -> None:
        self.name = name
        self._all = [Revision(schema) for schema in schemas]

    @classmethod
    def from_bytes(cls, name: str, value: bytes) -> RevisionHistory:
        return cls(name, pb.ListSchemaRevisionsResponse.FromString(value).schemas)

    def to_bytes(self) -> bytes:
        schemas = [revision.schema for revision in self._all]
        return pb.ListSchemaRevisionsResponse(schemas=schemas).SerializeToString()

    @property
    def places(self) -> dict[int, Revision]:
        """Those that are not deleted, oldest first, by places that outlast deletions."""
        return {p: revision for p, revision in enumerate(self._all) if not revision.is_deleted}

    @property
    def revisions(self) -> list[Revision]:
        """Those that are not deleted, oldest first."""
        return list(self.places.values())

    @property
    def head(self) -> Revision:
        return self.revisions[-1]

    def find(self, revision_id: str) -> Revision | None:
        return next((revision for revision in self.revisions if revision.id == revision_id), None)

    def add(self, schema: pb.Schema, definition: Definition, now: float) -> Revision:
        """Append a copy of `schema` under an id of its own."""
        new = deepcopy(schema)
        new.name = self.name
        new.revision_id = self._new_id()
        new.revision_create_time.FromMicroseconds(int(now * 1_000_000))
        self._all.append(Revision(new, definition))
        return self._all[-1]

    def delete(self, revision: Revision) -> None:
        place = self._all.index(revision)
        self._all[place] = Revision(pb.Schema(name=self.name, revision_id=revision.id))
        deleted = [other for other in self._all if other.is_deleted]
        if len(deleted) > MAX_DELETED:
            self._all.remove(deleted[0])

    def between(self, first_id: str, last_id: str) -> list[Revision]:
        """Revisions from one to another, newest first; "" leaves that end open.

        A bound that is forgotten, for it was deleted long ago, counts as before all others.
        """
        ids = [revision.id for revision in self._all]
        first = ids.index(first_id) if first_id in ids else 0
        last = ids.index(last_id) if last_id in ids else -1
        stop = last + 1 if last_id else len(ids)
        found = [revision for revision in self._all[first:stop] if not revision.is_deleted]
        return found[::-1]

    def in_order(self, first_id: str, last_id: str) -> bool:
        """Whether two revisions, given by their ids, stand in this order."""
        ids = [revision.id for revision in self._all]
        return ids.index(first_id) <= ids.index(last_id)

    def _new_id(self) -> str:
        used = {revision.id for revision in self._all}
        while (new_id := secrets.token_hex(4)) in used:
            pass
        return new_id
