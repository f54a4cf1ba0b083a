"""All schemas of a broker: the SchemaService without its wire, and the guard of publishing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy

from emulator.engine import paging
from emulator.engine.observer import Observer, Resource
from emulator.refusals import exists, invalid_argument, limit_exceeded, missing
from protocol import names
from protocol.errors import InvalidArgument, NotFound
from protocol.messages import pubsub_pb2 as pubsub
from protocol.messages import schema_pb2 as pb

from .compiling import compile_schema
from .definition import Definition, Incompatible
from .enforcement import check_encoding, check_message, enforce
from .revision_history import Revision, RevisionHistory

MAX_SCHEMAS = 10_000
MAX_REVISIONS = 20

# Revisions are listed from the newest on; pages are cut in the order of their keys.
_LAST_KEY = 10**9 - 1


class SchemaRegistry:
    """The one owner of schemas; like the engine not thread-safe, and never waiting.

    `wall` is the wall time. `observer` is told of every schema that was saved (all its revisions in
    the bytes, which `restore` takes) or removed. `on_deleted` is called with the name of a schema
    that is gone: topics that use it must show so. Every method that takes a request checks it whole
    before it changes anything, and returns messages that are the caller's to keep.
    """

    def __init__(
        self,
        *,
        wall: Callable[[], float],
        observer: Observer | None = None,
        on_deleted: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._wall = wall
        self.observer = observer or Observer()
        self.on_deleted = on_deleted
        self._histories: dict[str, RevisionHistory] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._histories

    def restore(self, name: str, value: bytes) -> None:
        """Take up a schema that an observer was told of; tells the observer nothing."""
        self._histories[name] = RevisionHistory.from_bytes(name, value)

    def clear(self) -> None:
        """Remove all schemas, without a word to `on_deleted`: the topics go with them."""
        for name in list(self._histories):
            del self._histories[name]
            self.observer.removed(Resource.SCHEMA, name)

    # ---- schemas -------------------------------------------------------------------------------

    def create(self, request: pb.CreateSchemaRequest) -> pb.Schema:
        project = names.validate_project(request.parent)
        name = names.validate("schemas", f"{project}/schemas/{request.schema_id}")
        if name in self._histories:
            raise exists(name)
        count = len(self._of(project))
        if count >= MAX_SCHEMAS:
            raise limit_exceeded("schemas-per-project", count, MAX_SCHEMAS)
        definition = compile_schema(request.schema)
        history = self._histories[name] = RevisionHistory(name)
        return self._append(history, request.schema, definition)

    def get(self, request: pb.GetSchemaRequest) -> pb.Schema:
        history, revision_id = self._named(request.name)
        revision = _revision(history, revision_id) if revision_id else history.head
        return _shown(revision, request.view or pb.FULL)

    def list_schemas(self, request: pb.ListSchemasRequest) -> pb.ListSchemasResponse:
        mine = self._of(names.validate_project(request.parent))
        listed, token = paging.page(mine, request.page_size, request.page_token)
        schemas = [_shown(self._histories[n].head, request.view or pb.BASIC) for n in listed]
        return pb.ListSchemasResponse(schemas=schemas, next_page_token=token)

    def delete(self, name: str) -> None:
        """Delete a schema with all its revisions. Topics that use it take no messages then."""
        del self._histories[self._history(name).name]
        self.observer.removed(Resource.SCHEMA, name)
        self.on_deleted(name)

    # ---- revisions -----------------------------------------------------------------------------

    def list_revisions(
        self, request: pb.ListSchemaRevisionsRequest
    ) -> pb.ListSchemaRevisionsResponse:
        history = self._history(request.name)
        keys = {
            f"{history.name}@{_LAST_KEY - place}": revision
            for place, revision in history.places.items()
        }
        listed, token = paging.page(keys, request.page_size, request.page_token)
        schemas = [_shown(keys[key], request.view or pb.BASIC) for key in listed]
        return pb.ListSchemaRevisionsResponse(schemas=schemas, next_page_token=token)

    def commit(self, request: pb.CommitSchemaRequest) -> pb.Schema:
        history = self._history(request.name)
        new = compile_schema(request.schema)
        for older in reversed(history.revisions):
            try:
                new.check_follows(older.definition)
            except Incompatible as problem:
                raise InvalidArgument(
                    "Compatibility checking failed to commit a schema revision for "
                    f'(schema="{history.name}"). (reason="Revision is incompatible with previous '
                    f"revision: {older.id}. Failed with error: {problem}). Refer to "
                    "https://cloud.google.com/pubsub/docs/schemas for more information."
                ) from None
        return self._append(history, request.schema, new)

    def rollback(self, request: pb.RollbackSchemaRequest) -> pb.Schema:
        """Make a copy of an old revision the newest one."""
        history = self._history(request.name)
        old = _revision(history, request.revision_id)
        return self._append(history, old.schema, old.definition)

    def delete_revision(self, request: pb.DeleteSchemaRevisionRequest) -> pb.Schema:
        history, revision_id = self._named(request.name)
        revision = _revision(history, revision_id or request.revision_id)
        if len(history.revisions) == 1:
            raise InvalidArgument("Cannot delete last revision. Please use DeleteSchema.")
        history.delete(revision)
        self._save(history)
        return _shown(revision, pb.FULL)

    # ---- validation ----------------------------------------------------------------------------

    def validate_schema(self, request: pb.ValidateSchemaRequest) -> pb.ValidateSchemaResponse:
        names.validate_project(request.parent)
        compile_schema(request.schema)
        return pb.ValidateSchemaResponse()

    def validate_message(self, request: pb.ValidateMessageRequest) -> pb.ValidateMessageResponse:
        names.validate_project(request.parent)
        if request.WhichOneof("schema_spec") == "schema":
            revision, name = Revision(request.schema), "(given in the request)"
        else:
            history, revision_id = self._named(request.name)
            revision = _revision(history, revision_id) if revision_id else history.head
            name = history.name
        check_encoding(request.encoding)
        check_message(name, [revision], request.message, request.encoding)
        return pb.ValidateMessageResponse()

    def check_settings(self, settings: pubsub.SchemaSettings) -> None:
        """Refuse settings of a topic that name no schema, no encoding, or unknown revisions."""
        history = self._history(settings.schema)
        check_encoding(settings.encoding)
        bounds = [b for b in (settings.first_revision_id, settings.last_revision_id) if b]
        for bound in bounds:
            _revision(history, bound)
        if len(bounds) == 2 and not history.in_order(*bounds):
            raise invalid_argument(
                f"Invalid schema settings: first_revision_id {bounds[0]} is newer than "
                f"last_revision_id {bounds[1]}"
            )

    def validate(self, topic: pubsub.Topic, messages: Iterable[pubsub.PubsubMessage]) -> None:
        """Refuse a publish that breaks the topic's schema; mark its messages otherwise."""
        if not topic.HasField("schema_settings"):
            return
        settings = topic.schema_settings
        history = self._histories.get(settings.schema)
        if history is None:
            raise NotFound("Schema associated with topic deleted.")
        enforce(history, settings, messages)

    # ---- look-ups ------------------------------------------------------------------------------

    def _of(self, project: str) -> list[str]:
        return [name for name in self._histories if name.startswith(f"{project}/schemas/")]

    def _history(self, name: str) -> RevisionHistory:
        history = self._histories.get(name)
        if history is None:
            raise missing(names.validate("schemas", name))
        return history

    def _named(self, name: str) -> tuple[RevisionHistory, str]:
        """A schema and, if the name has one, the id of a revision."""
        base, at, revision_id = name.partition("@")
        if at and not revision_id:
            raise names.invalid_name(name)
        return self._history(base), revision_id

    def _append(
        self, history: RevisionHistory, schema: pb.Schema, definition: Definition
    ) -> pb.Schema:
        count = len(history.revisions)
        if count >= MAX_REVISIONS:
            raise limit_exceeded("revisions-per-schema", count, MAX_REVISIONS)
        revision = history.add(schema, definition, self._wall())
        self._save(history)
        return _shown(revision, pb.FULL)

    def _save(self, history: RevisionHistory) -> None:
        self.observer.saved(Resource.SCHEMA, history.name, history.to_bytes())


def _revision(history: RevisionHistory, revision_id: str) -> Revision:
    revision = history.find(revision_id)
    if revision is None:
        raise missing(f"{history.name}@{revision_id}")
    return revision


def _shown(revision: Revision, view: pb.SchemaView) -> pb.Schema:
    shown = deepcopy(revision.schema)
    if view == pb.BASIC:
        shown.ClearField("definition")
        shown.ClearField("compiled_proto_schema")
    return shown
