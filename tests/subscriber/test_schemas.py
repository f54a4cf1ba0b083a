"""SchemaServiceClient: every call, against the broker."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from pullstream import SchemaServiceClient
from pullstream_emulator import Emulator
from pullstream_protocol.errors import AlreadyExists, InvalidArgument, NotFound

PROJECT, NAME = "projects/p", "projects/p/schemas/order"


def avro(*fields: str) -> dict[str, str]:
    """Return an Avro schema whose fields have defaults, so that its revisions are compatible."""
    members = [{"name": each, "type": "int", "default": 0} for each in fields]
    content = {"type": "record", "name": "Order", "fields": members}
    return {"type": "AVRO", "definition": json.dumps(content)}


@pytest.fixture
def client() -> Iterator[SchemaServiceClient]:
    with Emulator() as emulator, SchemaServiceClient(endpoint=emulator.endpoint) as client:
        yield client


def test_the_schema_client_creates_reads_revises_and_deletes_schemas(
    client: SchemaServiceClient,
) -> None:
    """Revisions are named by their ids."""
    first = client.create_schema(parent=PROJECT, schema_id="order", schema=avro("id"))
    assert first.name == NAME
    with pytest.raises(AlreadyExists):
        client.create_schema(parent=PROJECT, schema_id="order", schema=avro("id"))
    second = client.commit_schema(name=NAME, schema={"name": NAME, **avro("id", "cents")})
    third = client.rollback_schema(name=NAME, revision_id=first.revision_id)
    assert client.get_schema(name=f"{NAME}@{second.revision_id}").definition == second.definition
    assert client.get_schema(name=NAME).revision_id == third.revision_id
    assert [each.name for each in client.list_schemas(parent=PROJECT)] == [NAME]
    revisions = [each.revision_id for each in client.list_schema_revisions(name=NAME)]
    assert revisions == [each.revision_id for each in (third, second, first)]
    client.delete_schema_revision(name=f"{NAME}@{second.revision_id}")
    assert len(list(client.list_schema_revisions(name=NAME))) == 2
    client.delete_schema(name=NAME)
    with pytest.raises(NotFound):
        client.get_schema(name=NAME)


def test_the_schema_client_validates_schema_definitions_and_messages(
    client: SchemaServiceClient,
) -> None:
    """Nothing is stored."""
    client.validate_schema(parent=PROJECT, schema=avro("id"))
    with pytest.raises(InvalidArgument):
        client.validate_schema(parent=PROJECT, schema={"type": "AVRO", "definition": "{"})
    message = {"parent": PROJECT, "schema": avro("id"), "encoding": "JSON"}
    client.validate_message({**message, "message": b'{"id": 1}'})
    with pytest.raises(InvalidArgument):
        client.validate_message({**message, "message": b'{"id": "one"}'})
    assert list(client.list_schemas(parent=PROJECT)) == []
