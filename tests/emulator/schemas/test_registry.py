"""Schemas and their revisions: storage, lists, errors, and restoration."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from pullstream_emulator.engine.observer import Resource
from pullstream_emulator.schemas import SchemaRegistry
from pullstream_emulator.schemas import registry as registry_module
from pullstream_emulator.schemas.compiling import MAX_DEFINITION_BYTES
from pullstream_emulator.schemas.registry import MAX_REVISIONS
from pullstream_emulator.schemas.revision_history import MAX_DELETED
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import AlreadyExists, InvalidArgument, NotFound, ResourceExhausted
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.messages import schema_pb2 as pb
from tests.emulator.broker import SavedResources

PROJECT = "projects/test"
NAME = f"{PROJECT}/schemas/states"


def avro(*optional: str) -> pb.Schema:
    """Return a record with one required field and some with defaults."""
    fields: list[dict[str, Any]] = [{"name": "name", "type": "string"}]
    fields += [{"name": field, "type": "int", "default": 0} for field in optional]
    definition = json.dumps({"type": "record", "name": "State", "fields": fields})
    return pb.Schema(type=pb.Schema.AVRO, definition=definition)


class Registry:
    """A registry with short names for frequent operations."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.notes = SavedResources(Resource.SCHEMA)
        self.gone: list[str] = []
        self.schemas = SchemaRegistry(
            wall=self.clock.now, observer=self.notes, on_deleted=self.gone.append
        )

    def create(self, schema: pb.Schema | None = None, schema_id: str = "states") -> pb.Schema:
        return self.schemas.create(
            pb.CreateSchemaRequest(parent=PROJECT, schema_id=schema_id, schema=schema or avro())
        )

    def get(self, revision_id: str = "", view: int = 0) -> pb.Schema:
        name = f"{NAME}@{revision_id}" if revision_id else NAME
        return self.schemas.get(pb.GetSchemaRequest(name=name, view=pb.SchemaView.Name(view)))

    def commit(self, schema: pb.Schema) -> pb.Schema:
        self.clock.advance(1)
        return self.schemas.commit(pb.CommitSchemaRequest(name=NAME, schema=schema))

    def rollback(self, revision_id: str) -> pb.Schema:
        request = pb.RollbackSchemaRequest(name=NAME, revision_id=revision_id)
        return self.schemas.rollback(request)

    def delete_revision(self, revision_id: str) -> pb.Schema:
        request = pb.DeleteSchemaRevisionRequest(name=f"{NAME}@{revision_id}")
        return self.schemas.delete_revision(request)

    def revisions(self, **request: Any) -> list[str]:
        """Return the listed IDs of all pages."""
        ids: list[str] = []
        token = ""
        while True:
            page = self.schemas.list_revisions(
                pb.ListSchemaRevisionsRequest(name=NAME, page_token=token, **request)
            )
            ids += [schema.revision_id for schema in page.schemas]
            token = page.next_page_token
            if not token:
                return ids

    def takes(self, data: bytes, first: str = "", last: str = "") -> str:
        """Return the ID of the revision that accepts a message, or "" if none does."""
        topic = pubsub.Topic(
            schema_settings=pubsub.SchemaSettings(
                schema=NAME,
                encoding=pb.JSON,
                first_revision_id=first,
                last_revision_id=last,
            )
        )
        message = pubsub.PubsubMessage(data=data)
        try:
            self.schemas.validate(topic, [message])
        except InvalidArgument:
            return ""
        return message.attributes["googclient_schemarevisionid"]


@pytest.fixture
def registry() -> Registry:
    return Registry()


# ---- schemas -----------------------------------------------------------------------------------


def test_a_created_schema_has_a_name_a_revision_id_and_a_revision_create_time(
    registry: Registry,
) -> None:
    """The name consists of parent and ID."""
    asked = avro()
    asked.name = "projects/other/schemas/ignored"
    created = registry.create(asked)
    assert created.name == NAME
    assert created.definition == asked.definition
    assert re.fullmatch("[0-9a-f]{8}", created.revision_id)
    assert created.revision_create_time.ToSeconds() == registry.clock.now()
    assert registry.get() == created
    assert registry.get(created.revision_id) == created


def test_the_basic_view_of_a_schema_omits_its_definition(registry: Registry) -> None:
    """All other fields are included. The default view is full for Get and basic for lists."""
    created = registry.create()
    basic = pb.Schema()
    basic.CopyFrom(created)
    basic.ClearField("definition")
    assert registry.get(view=pb.BASIC) == basic
    assert registry.get(view=pb.FULL) == created
    for view, expected in ((0, basic), (pb.BASIC, basic), (pb.FULL, created)):
        named = pb.SchemaView.Name(view)
        listed = registry.schemas.list_schemas(pb.ListSchemasRequest(parent=PROJECT, view=named))
        assert list(listed.schemas) == [expected]
        revisions = registry.schemas.list_revisions(
            pb.ListSchemaRevisionsRequest(name=NAME, view=named)
        )
        assert list(revisions.schemas) == [expected]


def test_schemas_of_a_project_are_listed_in_the_order_of_their_names(registry: Registry) -> None:
    """The list has the schemas of one project in pages, each with its newest revision."""
    for schema_id in ("states", "areas", "zones"):
        registry.create(schema_id=schema_id)
    newest = registry.commit(avro("people"))
    registry.schemas.create(
        pb.CreateSchemaRequest(parent="projects/other", schema_id="states", schema=avro())
    )
    first = registry.schemas.list_schemas(pb.ListSchemasRequest(parent=PROJECT, page_size=2))
    assert [s.name.rpartition("/")[2] for s in first.schemas] == ["areas", "states"]
    assert first.schemas[1].revision_id == newest.revision_id
    rest = registry.schemas.list_schemas(
        pb.ListSchemasRequest(parent=PROJECT, page_token=first.next_page_token)
    )
    assert [s.name.rpartition("/")[2] for s in rest.schemas] == ["zones"]
    assert not rest.next_page_token


def test_changing_the_result_of_create_schema_does_not_change_the_stored_schema(
    registry: Registry,
) -> None:
    """A change of the returned object does not affect the broker."""
    registry.create().definition = "changed"
    assert registry.get().definition == avro().definition


def test_creating_a_schema_with_an_existing_name_is_refused(registry: Registry) -> None:
    """The second creation is refused, and the first schema stays."""
    created = registry.create()
    with pytest.raises(AlreadyExists, match=r"in the project \(resource=states\)\."):
        registry.create(avro("people"))
    assert registry.get() == created


def test_creating_more_schemas_in_a_project_than_the_maximum_is_refused(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is per project."""
    monkeypatch.setattr(registry_module, "MAX_SCHEMAS", 1)
    registry.create()
    with pytest.raises(ResourceExhausted, match='"schemas-per-project", current=1, maximum=1'):
        registry.create(schema_id="zones")
    request = pb.CreateSchemaRequest(parent="projects/other", schema_id="zones", schema=avro())
    registry.schemas.create(request)


@pytest.mark.parametrize("schema_id", ["", "ab", "1abc", "googly", "a b", "a@b"])
def test_a_schema_with_an_invalid_id_is_refused(registry: Registry, schema_id: str) -> None:
    """The error has the whole name."""
    with pytest.raises(InvalidArgument, match=f"name={PROJECT}/schemas/{schema_id}"):
        registry.create(schema_id=schema_id)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (pb.Schema(), "Invalid schema type"),
        (pb.Schema(definition='"int"'), "Invalid schema type"),
        (pb.Schema(type=pb.Schema.AVRO), "Invalid schema definition: Could not parse schema"),
        (pb.Schema(type=pb.Schema.AVRO, definition="{"), "Could not parse schema. .it is not JSON"),
        (pb.Schema(type=pb.Schema.PROTOCOL_BUFFER, definition="{"), "Could not parse schema"),
        (
            pb.Schema(type=pb.Schema.AVRO, compiled_proto_schema=pb.CompiledProtoSchema()),
            "not of type AVRO",
        ),
        (
            pb.Schema(
                type=pb.Schema.PROTOCOL_BUFFER,
                definition="message M {}",
                compiled_proto_schema=pb.CompiledProtoSchema(),
            ),
            "both",
        ),
        (
            pb.Schema(type=pb.Schema.AVRO, definition=" " * (MAX_DEFINITION_BYTES + 1)),
            "too large. You passed 307201 in the request, but the maximum value is 307200",
        ),
    ],
)
def test_every_schema_call_refuses_an_invalid_definition_and_stores_nothing(
    registry: Registry, schema: pb.Schema, text: str
) -> None:
    """Create, Commit and both validation calls give the same error, and nothing changes."""
    registry.create()
    before = dict(registry.notes.kept)
    with pytest.raises(InvalidArgument, match=text):
        registry.create(schema, "other")
    with pytest.raises(InvalidArgument, match=text):
        registry.commit(schema)
    with pytest.raises(InvalidArgument, match=text):
        registry.schemas.validate_schema(pb.ValidateSchemaRequest(parent=PROJECT, schema=schema))
    with pytest.raises(InvalidArgument, match=text):
        registry.schemas.validate_message(
            pb.ValidateMessageRequest(parent=PROJECT, schema=schema, encoding=pb.JSON)
        )
    assert registry.notes.kept == before


def test_every_call_for_a_missing_schema_ends_with_not_found(registry: Registry) -> None:
    """Every call that needs one returns an error with its short name."""
    calls: list[Callable[[], object]] = [
        registry.get,
        lambda: registry.get("0a0a0a0a"),
        lambda: registry.commit(avro()),
        lambda: registry.rollback("0a0a0a0a"),
        lambda: registry.delete_revision("0a0a0a0a"),
        registry.revisions,
        lambda: registry.schemas.delete(NAME),
    ]
    for call in calls:
        with pytest.raises(NotFound, match=r"Resource not found \(resource=states\)"):
            call()


@pytest.mark.parametrize("name", ["", "states", NAME + "@", NAME + "@1@2", NAME + "/x"])
def test_schema_calls_with_a_malformed_name_are_refused(registry: Registry, name: str) -> None:
    """A malformed name is reported before a missing schema."""
    with pytest.raises((InvalidArgument, NotFound)) as refused:
        registry.schemas.get(pb.GetSchemaRequest(name=name))
    assert name.count("@") == 2 or isinstance(refused.value, InvalidArgument)
    with pytest.raises(InvalidArgument, match=re.escape(f"(name={name})")):
        registry.schemas.delete(name)


def test_getting_a_deleted_schema_ends_with_not_found(registry: Registry) -> None:
    """The topics are notified, and the name can be used again."""
    registry.create()
    registry.schemas.delete(NAME)
    assert registry.gone == [NAME]
    assert registry.notes.kept == {}
    assert NAME not in registry.schemas
    with pytest.raises(NotFound):
        registry.get()
    registry.create()


# ---- revisions ---------------------------------------------------------------------------------


def test_committing_a_schema_creates_a_new_revision_which_get_schema_returns(
    registry: Registry,
) -> None:
    """The old revision is unchanged."""
    first = registry.create()
    second = registry.commit(avro("people"))
    assert second.revision_id != first.revision_id
    assert second.revision_create_time.ToSeconds() == first.revision_create_time.ToSeconds() + 1
    assert registry.get() == second
    assert registry.get(first.revision_id) == first
    assert registry.revisions() == [second.revision_id, first.revision_id]


def test_schema_revisions_are_listed_in_pages(registry: Registry) -> None:
    """The newest comes first. None is repeated or skipped."""
    ids = [registry.create().revision_id]
    ids += [registry.commit(avro(f"f{i}")).revision_id for i in range(6)]
    assert registry.revisions(page_size=3) == ids[::-1]


def test_a_schema_commit_that_is_incompatible_with_at_least_one_older_revision_is_refused(
    registry: Registry,
) -> None:
    """The schema must also match older revisions, which a topic may still accept."""
    first = registry.create(avro("people")).revision_id
    registry.commit(avro())
    changed = avro()
    changed.definition = avro("people").definition.replace('"int"', '"string"').replace("0", '""')
    with pytest.raises(InvalidArgument) as refused:
        registry.commit(changed)
    assert refused.value.message == (
        f'Compatibility checking failed to commit a schema revision for (schema="{NAME}"). '
        f'(reason="Revision is incompatible with previous revision: {first}. Failed with error: '
        "int cannot be read as string). Refer to https://cloud.google.com/pubsub/docs/schemas "
        "for more information."
    )
    assert len(registry.revisions()) == 2


def test_a_schema_commit_that_changes_the_type_of_the_schema_is_refused(registry: Registry) -> None:
    """A commit of the other type is incompatible."""
    registry.create()
    other = pb.Schema(type=pb.Schema.PROTOCOL_BUFFER, definition="message State {}")
    with pytest.raises(InvalidArgument, match="the type of a schema cannot change"):
        registry.commit(other)


def test_a_schema_rollback_commits_a_copy_of_an_old_schema_revision(
    registry: Registry,
) -> None:
    """The copy has a new ID. Revisions in between stay."""
    first = registry.create()
    second = registry.commit(avro("people"))
    head = registry.rollback(first.revision_id)
    assert head.definition == first.definition
    ids = [head.revision_id, second.revision_id, first.revision_id]
    assert len(set(ids)) == 3
    assert registry.revisions() == ids
    with pytest.raises(NotFound, match="resource=states@0a0a0a0a"):
        registry.rollback("0a0a0a0a")


def test_schema_revisions_can_be_deleted_except_the_last_one(
    registry: Registry,
) -> None:
    """After a deletion of the head the previous revision is the head.

    The last one cannot be deleted.
    """
    first = registry.create()
    second = registry.commit(avro("people"))
    assert registry.delete_revision(second.revision_id) == second
    assert registry.get() == first
    with pytest.raises(NotFound, match=f"resource=states@{second.revision_id}"):
        registry.get(second.revision_id)
    with pytest.raises(InvalidArgument, match="Cannot delete last revision"):
        registry.delete_revision(first.revision_id)
    assert registry.revisions() == [first.revision_id]


def test_a_delete_schema_revision_request_may_give_the_revision_in_its_revision_id_field(
    registry: Registry,
) -> None:
    """Older clients use a separate field."""
    first = registry.create().revision_id
    registry.commit(avro("people"))
    registry.schemas.delete_revision(pb.DeleteSchemaRevisionRequest(name=NAME, revision_id=first))
    assert first not in registry.revisions()


def test_a_schema_commit_beyond_the_maximum_of_revisions_is_refused(
    registry: Registry,
) -> None:
    """A deletion makes room."""
    first = registry.create().revision_id
    for _ in range(MAX_REVISIONS - 1):
        registry.commit(avro())
    with pytest.raises(ResourceExhausted, match=r'"revisions-per-schema", current=20, maximum=20'):
        registry.commit(avro())
    with pytest.raises(ResourceExhausted):
        registry.rollback(first)
    assert len(registry.revisions()) == MAX_REVISIONS
    registry.delete_revision(first)
    registry.rollback(registry.revisions()[-1])


# ---- messages ----------------------------------------------------------------------------------


def test_a_message_gets_the_id_of_the_newest_schema_revision_that_accepts_it(
    registry: Registry,
) -> None:
    """Avro's JSON has every field, so each message fits only one revision here."""
    first = registry.create().revision_id
    second = registry.commit(avro("people")).revision_id
    third = registry.rollback(first).revision_id
    small, large = b'{"name": "Ohio"}', b'{"name": "Ohio", "people": 1}'
    assert registry.takes(small) == third
    assert registry.takes(large) == second
    assert registry.takes(b'{"people": 1}') == ""
    assert registry.takes(small, last=second) == first
    assert registry.takes(small, first=second, last=second) == ""
    assert registry.takes(large, first=third) == ""


def test_a_topic_keeps_its_schema_revision_range_if_the_first_or_last_revision_is_deleted(
    registry: Registry,
) -> None:
    """The range between two bounds does not change when these are deleted."""
    small, large = b'{"name": "Ohio"}', b'{"name": "Ohio", "people": 1}'
    first = registry.create().revision_id
    second = registry.commit(avro("people")).revision_id
    third = registry.commit(avro("people")).revision_id
    fourth = registry.commit(avro()).revision_id
    registry.delete_revision(second)
    assert registry.takes(small, first=second, last=third) == ""
    assert registry.takes(large, first=second, last=third) == third
    registry.delete_revision(third)
    assert registry.takes(large, first=second, last=third) == ""
    assert registry.takes(small, last=third) == first
    assert registry.takes(small, first=third) == fourth


def test_the_number_of_remembered_deleted_schema_revisions_is_limited(
    registry: Registry,
) -> None:
    """A forgotten bound counts as before all others."""
    message = b'{"name": "Ohio"}'
    oldest = registry.create().revision_id
    forgotten = registry.commit(avro()).revision_id
    registry.delete_revision(forgotten)
    assert registry.takes(message, last=forgotten) == oldest
    sizes = []
    for _ in range(3):
        for _ in range(MAX_DELETED):
            head = registry.commit(avro()).revision_id
            registry.delete_revision(head)
        sizes.append(len(registry.notes.kept[NAME]))
    assert registry.takes(message, first=forgotten) == oldest
    assert registry.takes(message, last=forgotten) == ""
    assert registry.takes(message, last=head) == oldest
    assert sizes[0] == sizes[1] == sizes[2]


def validate(registry: Registry, data: bytes, **spec: Any) -> None:
    registry.schemas.validate_message(
        pb.ValidateMessageRequest(
            **{"parent": PROJECT, "message": data, "encoding": pb.JSON, **spec}
        )
    )


def test_a_schema_created_from_a_compiled_protobuf_schema_validates_messages(
    registry: Registry,
) -> None:
    """Messages are validated against its root."""
    field = FieldDescriptorProto(name="name", number=1, type=FieldDescriptorProto.TYPE_STRING)
    messages = [DescriptorProto(name="State", field=[field]), DescriptorProto(name="Other")]
    file = FileDescriptorProto(name="state.proto", syntax="proto3", message_type=messages)
    compiled = pb.CompiledProtoSchema(
        root_message="State", compiled_bytes=FileDescriptorSet(file=[file]).SerializeToString()
    )
    schema = pb.Schema(type=pb.Schema.PROTOCOL_BUFFER, compiled_proto_schema=compiled)
    created = registry.create(schema)
    assert registry.get().compiled_proto_schema == compiled
    assert not registry.get(view=pb.BASIC).HasField("compiled_proto_schema")
    assert registry.takes(b'{"name": "Ohio"}') == created.revision_id
    assert registry.takes(b'{"people": 1}') == ""


def test_validate_message_checks_a_message_by_a_stored_revision_or_an_inline_schema(
    registry: Registry,
) -> None:
    """The schema may be a stored one, one of its revisions, or part of the request."""
    first = registry.create().revision_id
    registry.commit(avro("people"))
    small, large = b'{"name": "Ohio"}', b'{"name": "Ohio", "people": 1}'
    validate(registry, large, name=NAME)
    validate(registry, small, name=f"{NAME}@{first}")
    validate(registry, small, schema=avro())
    validate(registry, b"\x08Ohio", schema=avro(), encoding=pb.BINARY)
    for data, spec in ((small, {"name": NAME}), (large, {"schema": avro()})):
        with pytest.raises(InvalidArgument, match="Message failed schema validation"):
            validate(registry, data, **spec)
    with pytest.raises(InvalidArgument, match="Invalid schema encoding"):
        validate(registry, small, name=NAME, encoding=0)
    with pytest.raises(InvalidArgument, match="Invalid resource name"):
        validate(registry, small)


def test_validate_schema_checks_a_schema_without_storing_it(registry: Registry) -> None:
    """A valid schema causes no error."""
    registry.schemas.validate_schema(pb.ValidateSchemaRequest(parent=PROJECT, schema=avro()))
    assert registry.notes.kept == {}


# ---- settings of topics ------------------------------------------------------------------------


def check_settings(registry: Registry, **settings: Any) -> None:
    registry.schemas.check_settings(
        pubsub.SchemaSettings(**{"schema": NAME, "encoding": pb.JSON, **settings})
    )


def test_topic_settings_with_a_missing_schema_or_a_reversed_revision_range_are_refused(
    registry: Registry,
) -> None:
    """The encoding is required, too."""
    with pytest.raises(NotFound, match="resource=states"):
        check_settings(registry)
    first = registry.create().revision_id
    second = registry.commit(avro("people")).revision_id
    check_settings(registry)
    check_settings(registry, first_revision_id=first, last_revision_id=second)
    check_settings(registry, first_revision_id=first, last_revision_id=first)
    with pytest.raises(InvalidArgument, match="Invalid schema encoding"):
        check_settings(registry, encoding=0)
    with pytest.raises(NotFound, match="resource=states@0a0a0a0a"):
        check_settings(registry, last_revision_id="0a0a0a0a")
    with pytest.raises(InvalidArgument, match=f"first_revision_id {second} is newer than"):
        check_settings(registry, first_revision_id=second, last_revision_id=first)
    with pytest.raises(InvalidArgument, match="Invalid resource name"):
        check_settings(registry, schema="_deleted-schema_")


# ---- restoration -------------------------------------------------------------------------------


def test_schemas_restored_from_storage_have_all_revisions_and_remember_deleted_ones(
    registry: Registry,
) -> None:
    """The bytes recorded by an observer have the revisions, their order, and deleted bounds."""
    first = registry.create().revision_id
    second = registry.commit(avro("people")).revision_id
    registry.commit(avro())
    registry.delete_revision(second)
    again = Registry()
    for name, value in registry.notes.kept.items():
        again.schemas.restore(name, value)
    assert again.notes.kept == {}
    assert again.get() == registry.get()
    assert again.revisions() == registry.revisions()
    assert again.takes(b'{"name": "Ohio"}', last=second) == first
    assert again.commit(avro("area")).revision_id not in registry.revisions()


def test_a_cleared_schema_registry_has_no_schemas(registry: Registry) -> None:
    """A reset also removes the topics, so they are not notified."""
    registry.create()
    registry.schemas.clear()
    assert registry.notes.kept == {}
    assert registry.gone == []
    assert NAME not in registry.schemas
