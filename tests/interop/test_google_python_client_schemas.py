"""google-cloud-pubsub for Python: schemas, and topics that validate their messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud.pubsub_v1 import SchemaServiceClient
from google.pubsub_v1.types import Encoding, Schema, SchemaSettings

from pullstream_emulator.pytest_plugin import pubsub_emulator as pubsub_emulator
from tests.interop.google_python import PROJECT, TIMEOUT, Clients
from tests.interop.google_python import clients as clients
from tests.interop.google_python import connect as connect

NAME = f"{PROJECT}/schemas/province"
STRICT = f"{PROJECT}/topics/strict"
STRICT_SUBSCRIPTION = f"{PROJECT}/subscriptions/strict"


def avro(*optional: str) -> str:
    """Return a record with a name, and with these optional fields."""
    fields: list[dict[str, Any]] = [{"name": "name", "type": "string"}]
    fields += [{"name": each, "type": ["null", "string"], "default": None} for each in optional]
    return json.dumps({"type": "record", "name": "Province", "fields": fields})


def proto(*optional: str) -> str:
    fields = [f"string {each} = {i};" for i, each in enumerate(("name", *optional), start=1)]
    return f'syntax = "proto3"; message Province {{ {" ".join(fields)} }}'


BOTH = pytest.mark.parametrize(
    ("kind", "define"),
    [(Schema.Type.AVRO, avro), (Schema.Type.PROTOCOL_BUFFER, proto)],
    ids=["avro", "protobuf"],
)
Define = Callable[..., str]


@pytest.fixture
def schemas(clients: Clients) -> Iterator[SchemaServiceClient]:
    with SchemaServiceClient() as schemas:
        yield schemas


def create(schemas: SchemaServiceClient, kind: Any, definition: str) -> Any:
    return schemas.create_schema(
        parent=PROJECT, schema=Schema(type_=kind, definition=definition), schema_id="province"
    )


@BOTH
def test_a_topic_accepts_only_google_client_messages_that_match_its_schema(
    clients: Clients, schemas: SchemaServiceClient, kind: Any, define: Define
) -> None:
    """Accepted messages have attributes with the schema, its revision and the encoding."""
    schema = create(schemas, kind, define())
    settings = SchemaSettings(schema=NAME, encoding=Encoding.JSON)
    clients.publisher.create_topic(request={"name": STRICT, "schema_settings": settings})
    clients.subscriber.create_subscription(name=STRICT_SUBSCRIPTION, topic=STRICT)
    with pytest.raises(exceptions.InvalidArgument):
        clients.publisher.publish(STRICT, b'{"name": 1}').result(TIMEOUT)
    clients.publisher.publish(STRICT, b'{"name": "Ontario"}').result(TIMEOUT)
    (received,) = clients.pull(subscription=STRICT_SUBSCRIPTION)
    assert dict(received.message.attributes) == {
        "googclient_schemaencoding": "JSON",
        "googclient_schemaname": NAME,
        "googclient_schemarevisionid": schema.revision_id,
    }


@BOTH
def test_a_google_client_can_commit_roll_back_and_delete_schema_revisions(
    schemas: SchemaServiceClient, kind: Any, define: Define
) -> None:
    """Each revision has its own id, and the newest one is the schema."""
    first = create(schemas, kind, define())
    wider = Schema(name=NAME, type_=kind, definition=define("capital"))
    second = schemas.commit_schema(name=NAME, schema=wider)
    third = schemas.rollback_schema(name=NAME, revision_id=first.revision_id)
    assert schemas.get_schema(name=NAME).definition == first.definition
    assert schemas.get_schema(name=f"{NAME}@{second.revision_id}").definition == define("capital")
    listed = [each.revision_id for each in schemas.list_schema_revisions(name=NAME)]
    assert listed == [third.revision_id, second.revision_id, first.revision_id]
    schemas.delete_schema_revision(request={"name": f"{NAME}@{second.revision_id}"})
    left = {each.revision_id for each in schemas.list_schema_revisions(name=NAME)}
    assert left == {third.revision_id, first.revision_id}


@BOTH
def test_a_google_client_can_validate_schemas_and_messages_against_a_schema(
    schemas: SchemaServiceClient, kind: Any, define: Define
) -> None:
    """Neither of them is stored."""
    schema = Schema(type_=kind, definition=define())
    schemas.validate_schema(parent=PROJECT, schema=schema)
    with pytest.raises(exceptions.InvalidArgument):
        schemas.validate_schema(parent=PROJECT, schema=Schema(type_=kind, definition="nonsense"))
    request = {"parent": PROJECT, "schema": schema, "encoding": Encoding.JSON}
    schemas.validate_message(request={**request, "message": b'{"name": "Ontario"}'})
    with pytest.raises(exceptions.InvalidArgument):
        schemas.validate_message(request={**request, "message": b'{"name": 1}'})
    assert list(schemas.list_schemas(parent=PROJECT)) == []


def test_a_topic_shows_a_google_client_that_its_schema_was_deleted(
    clients: Clients, schemas: SchemaServiceClient
) -> None:
    """The topic shows this and accepts no more messages."""
    create(schemas, Schema.Type.AVRO, avro())
    settings = SchemaSettings(schema=NAME, encoding=Encoding.JSON)
    clients.publisher.create_topic(request={"name": STRICT, "schema_settings": settings})
    schemas.delete_schema(name=NAME)
    topic = clients.publisher.get_topic(topic=STRICT)
    assert topic.schema_settings.schema == "_deleted-schema_"
    with pytest.raises(exceptions.NotFound):
        clients.publisher.publish(STRICT, b'{"name": "Ontario"}').result(TIMEOUT)


def test_invalid_schema_requests_of_a_google_client_are_refused(
    clients: Clients, schemas: SchemaServiceClient
) -> None:
    """The schema is missing, exists already, or does not fit the topic."""
    with pytest.raises(exceptions.NotFound):
        schemas.get_schema(name=NAME)
    settings = SchemaSettings(schema=NAME, encoding=Encoding.JSON)
    with pytest.raises(exceptions.NotFound):
        clients.publisher.create_topic(request={"name": STRICT, "schema_settings": settings})
    create(schemas, Schema.Type.AVRO, avro())
    with pytest.raises(exceptions.AlreadyExists):
        create(schemas, Schema.Type.AVRO, avro())
