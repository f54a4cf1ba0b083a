"""All schemas of a broker: the methods of SchemaService, and the validation of messages."""

from __future__ import annotations

import json
from collections.abc import Callable, ItemsView, Sequence
from copy import deepcopy
from typing import Any

from pullstream_emulator.engine.observer import Observer, Resource
from pullstream_emulator.engine.resources.by_name import ByName
from pullstream_emulator.engine.resources.registry import check_room, page
from pullstream_emulator.error_texts import exists, invalid_argument, limit_exceeded, missing
from pullstream_protocol import names
from pullstream_protocol.errors import InvalidArgument, NotFound
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.messages import schema_pb2 as pb

from .compiling import compile_schema
from .definition import Definition, Incompatible, Mismatch
from .enforcement import (
    ENCODING_ATTRIBUTE,
    NAME_ATTRIBUTE,
    REVISION_ATTRIBUTE,
    Rules,
    check_encoding,
)
from .revision_history import Revision, RevisionHistory

MAX_SCHEMAS = 10_000
MAX_REVISIONS = 20

# Revisions are listed with the newest first, but pages are in ascending order of keys. So the keys
# count down from this number.
_LAST_KEY = 10**9 - 1

# Most bytes of definitions that the event loop compares, about 20 ms of work.
_MAX_COMPARED = 20_000

# Most bytes of JSON that are decoded, at most about 20 ms of work.
_MAX_DECODED = 160_000


class SchemaRegistry:
    """The owner of all schemas. Like the engine, it is not thread-safe and never waits.

    A method that takes a request checks all of it before it changes anything. Returned messages
    belong to the caller.

    Args:
        wall: Returns the wall time in seconds.
        observer: Is informed of every saved schema (with all its revisions, in the form that
            `restore` takes) and of every removed schema.
        on_deleted: Called with the name of a deleted schema. The topics that use it must show this.
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
        self._on_deleted = on_deleted
        self._histories: ByName[RevisionHistory] = ByName()

    def all(self) -> ItemsView[str, RevisionHistory]:
        """Return all schemas with their revisions, by full name."""
        return self._histories.items()

    def __contains__(self, name: str) -> bool:
        return name in self._histories

    def restore(self, name: str, value: bytes) -> None:
        """Restore a schema that an observer recorded, without informing the observer."""
        self._histories[name] = RevisionHistory.from_bytes(name, value)

    def clear(self) -> None:
        """Remove all schemas without a call of `on_deleted`: the topics are removed too."""
        for name in list(self._histories):
            del self._histories[name]
            self.observer.removed(Resource.SCHEMA, name)

    # ---- schemas -------------------------------------------------------------------------------

    def create(self, request: pb.CreateSchemaRequest) -> pb.Schema:
        """Create a schema with its first revision; a project has at most MAX_SCHEMAS schemas."""
        project = names.validate_project(request.parent)
        name = names.validate("schemas", f"{project}/schemas/{request.schema_id}")
        if name in self._histories:
            raise exists(name)
        check_room("schemas", self._histories, name, MAX_SCHEMAS)
        definition = compile_schema(request.schema)
        history = self._histories[name] = RevisionHistory(name)
        return self._append(history, request.schema, definition)

    def get(self, request: pb.GetSchemaRequest) -> pb.Schema:
        """Return the revision that the name gives after `@`, or else the newest revision."""
        history, revision_id = self._named(request.name)
        revision = _revision(history, revision_id) if revision_id else history.head
        return _shown(revision, request.view or pb.FULL)

    def list_schemas(self, request: pb.ListSchemasRequest) -> pb.ListSchemasResponse:
        """Return a page of a project's schemas, each with its newest revision."""
        project = names.project_of(names.validate_project(request.parent))
        listed, token = page(
            lambda after: self._histories.names_after(after, project),
            request.page_size,
            request.page_token,
        )
        schemas = [_shown(self._histories[n].head, request.view or pb.BASIC) for n in listed]
        return pb.ListSchemasResponse(schemas=schemas, next_page_token=token)

    def delete(self, name: str) -> None:
        """Delete a schema with all its revisions. Topics that use it then refuse messages."""
        del self._histories[self._history(name).name]
        self.observer.removed(Resource.SCHEMA, name)
        self._on_deleted(name)

    # ---- revisions -----------------------------------------------------------------------------

    def list_revisions(
        self, request: pb.ListSchemaRevisionsRequest
    ) -> pb.ListSchemaRevisionsResponse:
        """Return a page of a schema's revisions, newest first; deletions shift no page."""
        history = self._history(request.name)
        keys = {
            f"{history.name}@{_LAST_KEY - position}": revision
            for position, revision in history.by_position.items()
        }
        listed, token = page(
            lambda after: sorted(key for key in keys if key > after),
            request.page_size,
            request.page_token,
        )
        schemas = [_shown(keys[key], request.view or pb.BASIC) for key in listed]
        return pb.ListSchemaRevisionsResponse(schemas=schemas, next_page_token=token)

    def commit(
        self, request: pb.CommitSchemaRequest, checked: Sequence[Revision] | None = None
    ) -> pb.Schema:
        """Append a revision.

        Args:
            request: The request.
            checked: The revisions with which the new one was already compared; None: not compared.
        """
        history, new = self._history(request.name), compile_schema(request.schema)
        if checked != history.revisions:
            check_succession(history.name, new, history.revisions)
        return self._append(history, request.schema, new)

    def revisions(self, name: str) -> list[Revision]:
        """Return the revisions of a schema, with which a new one must be compatible."""
        return self._history(name).revisions

    def is_quick_commit(self, request: pb.CommitSchemaRequest) -> bool:
        """Return whether `commit` takes so little time that the event loop can call it."""
        revisions = self.revisions(request.name)
        size = _size(request.schema, *(revision.schema for revision in revisions))
        return size <= _MAX_COMPARED and not any(revision.needs_protoc for revision in revisions)

    def rollback(self, request: pb.RollbackSchemaRequest) -> pb.Schema:
        """Make a copy of an old revision the newest one."""
        history = self._history(request.name)
        old = _revision(history, request.revision_id)
        return self._append(history, old.schema, old.definition)

    def delete_revision(self, request: pb.DeleteSchemaRevisionRequest) -> pb.Schema:
        """Delete one revision and return it; the last revision of a schema stays."""
        history, revision_id = self._named(request.name)
        revision = _revision(history, revision_id or request.revision_id)
        if len(history.revisions) == 1:
            raise InvalidArgument("Cannot delete last revision. Please use DeleteSchema.")
        history.delete(revision)
        self._save(history)
        return _shown(revision, pb.FULL)

    # ---- validation ----------------------------------------------------------------------------

    def validate_schema(self, request: pb.ValidateSchemaRequest) -> pb.ValidateSchemaResponse:
        """Raise InvalidArgument unless the request has a valid definition; store nothing."""
        names.validate_project(request.parent)
        compile_schema(request.schema)
        return pb.ValidateSchemaResponse()

    def validate_message(self, request: pb.ValidateMessageRequest) -> pb.ValidateMessageResponse:
        """Check a message against a schema."""
        self.rules_of_message(request).check([request.message])
        return pb.ValidateMessageResponse()

    def rules_of_message(self, request: pb.ValidateMessageRequest) -> Rules:
        """Return the rules against which the message of a request must be checked."""
        names.validate_project(request.parent)
        if request.WhichOneof("schema_spec") == "schema":
            revision, name = Revision(request.schema), "(given in the request)"
        else:
            history, revision_id = self._named(request.name)
            revision = _revision(history, revision_id) if revision_id else history.head
            name = history.name
        check_encoding(request.encoding)
        return Rules(name, (revision,), request.encoding)

    def check_settings(self, settings: pubsub.SchemaSettings) -> None:
        """Refuse settings of a topic without a schema or encoding, or with unknown revisions."""
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

    def rules(self, settings: pubsub.SchemaSettings) -> Rules:
        """Return the present rules of a topic with these settings. Unchanged rules are equal.

        Raises:
            NotFound: The schema was deleted.
        """
        history = self._histories.get(settings.schema)
        if history is None:
            raise NotFound("Schema associated with topic deleted.")
        revisions = history.between(settings.first_revision_id, settings.last_revision_id)
        return Rules(history.name, tuple(revisions), settings.encoding)

    def validate(self, topic: pubsub.Topic, messages: Sequence[pubsub.PubsubMessage]) -> None:
        """Check messages against the schema of their topic, and set their attributes.

        Args:
            topic: The topic.
            messages: The messages.

        Raises:
            InvalidArgument: A message does not match the schema.
            NotFound: The schema was deleted.
        """
        if topic.HasField("schema_settings"):
            rules = self.rules(topic.schema_settings)
            found = rules.check([message.data for message in messages])
            rules.mark(messages, found)

    def decoded(self, message: pubsub.PubsubMessage) -> Any:
        """Return the data of a published message as a JSON value, by its schema.

        Returns:
            None if the message has no schema, if the schema or its revision was deleted or is not
            yet compiled, or if the data is too large to be decoded at once.
        """
        history = self._histories.get(message.attributes.get(NAME_ATTRIBUTE, ""))
        revision_id = message.attributes.get(REVISION_ATTRIBUTE, "")
        revision = history.find(revision_id) if history is not None else None
        if revision is None or revision.needs_protoc:
            return None
        try:
            if message.attributes[ENCODING_ATTRIBUTE] == pb.Encoding.Name(pb.BINARY):
                return revision.definition.decode_binary(message.data)
            if len(message.data) > _MAX_DECODED:
                return None
            # Browsers cannot read NaN and Infinity from JSON, so they become text.
            return json.loads(message.data, parse_constant=str)
        except (Mismatch, RecursionError):
            return None

    # ---- look-ups ------------------------------------------------------------------------------

    def _history(self, name: str) -> RevisionHistory:
        history = self._histories.get(name)
        if history is None:
            raise missing(names.validate("schemas", name))
        return history

    def _named(self, name: str) -> tuple[RevisionHistory, str]:
        """Return a schema and the revision ID in the name, "" if it has none."""
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


def check_succession(name: str, new: Definition, revisions: Sequence[Revision]) -> None:
    """Refuse a definition that is not compatible with all revisions of a schema.

    Args:
        name: The full name of the schema, for the error text.
        new: The new definition.
        revisions: The revisions, oldest first.

    Raises:
        InvalidArgument: The definition is incompatible with a revision.
    """
    for older in reversed(revisions):
        try:
            new.check_follows(older.definition)
        except Incompatible as problem:
            raise InvalidArgument(
                "Compatibility checking failed to commit a schema revision for "
                f'(schema="{name}"). (reason="Revision is incompatible with previous '
                f"revision: {older.id}. Failed with error: {problem}). Refer to "
                "https://cloud.google.com/pubsub/docs/schemas for more information."
            ) from None


def _size(*schemas: pb.Schema) -> int:
    """Return the total size of some definitions, in bytes."""
    return sum(
        len(schema.definition) + len(schema.compiled_proto_schema.compiled_bytes)
        for schema in schemas
    )


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
