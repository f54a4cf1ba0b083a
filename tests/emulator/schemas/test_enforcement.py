"""Topics with a schema: validation of published messages, and attributes for subscribers."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from pullstream_protocol import errors, names
from pullstream_protocol.messages import iam_pb2 as iam
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.messages import schema_pb2 as pb
from tests.emulator.broker import PROJECT, SUBSCRIPTION, TOPIC
from tests.emulator.wire import Wire

SCHEMA = f"{PROJECT}/schemas/states"
AVRO = json.dumps(
    {"type": "record", "name": "State", "fields": [{"name": "name", "type": "string"}]}
)
PROTO = 'syntax = "proto3"; message State { string name = 1; }'
OHIO = b'{"name": "Ohio"}'
IN_AVRO, IN_PROTO = b"\x08Ohio", b"\x0a\x04Ohio"


def create(
    wire: Wire,
    *,
    type: pb.Schema.Type = pb.Schema.AVRO,
    definition: str = AVRO,
    encoding: pb.Encoding = pb.JSON,
) -> str:
    """Create a schema, a topic with it, and a subscription. Return the ID of the revision."""
    request = pb.CreateSchemaRequest(
        parent=PROJECT, schema_id="states", schema=pb.Schema(type=type, definition=definition)
    )
    revision_id: str = wire.call("CreateSchema", request).revision_id
    settings = pubsub.SchemaSettings(schema=SCHEMA, encoding=encoding)
    wire.call("CreateTopic", pubsub.Topic(name=TOPIC, schema_settings=settings))
    wire.call("CreateSubscription", pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC))
    return revision_id


def publish(wire: Wire, *data: bytes) -> Any:
    """Start a publish and return its future."""
    messages = [pubsub.PubsubMessage(data=part, attributes={"own": "1"}) for part in data]
    return wire.start("Publish", pubsub.PublishRequest(topic=TOPIC, messages=messages))


def refusal(call: Any) -> errors.RpcError:
    failed = call.exception()
    assert isinstance(failed, grpc.RpcError)
    return errors.from_rpc_error(failed)


def delete_schema(wire: Wire) -> None:
    wire.call("DeleteSchema", pb.DeleteSchemaRequest(name=SCHEMA))


def topic_of(wire: Wire) -> pubsub.Topic:
    topic: pubsub.Topic = wire.call("GetTopic", pubsub.GetTopicRequest(topic=TOPIC))
    return topic


@pytest.mark.parametrize(
    ("type", "definition", "encoding", "data"),
    [
        (pb.Schema.AVRO, AVRO, pb.JSON, OHIO),
        (pb.Schema.AVRO, AVRO, pb.BINARY, IN_AVRO),
        (pb.Schema.PROTOCOL_BUFFER, PROTO, pb.JSON, OHIO),
        (pb.Schema.PROTOCOL_BUFFER, PROTO, pb.BINARY, IN_PROTO),
    ],
    ids=["Avro in JSON", "Avro in binary", "protobuf in JSON", "protobuf in binary"],
)
def test_messages_published_to_a_topic_with_a_schema_are_checked_and_get_schema_attributes(
    wire: Wire, type: pb.Schema.Type, definition: str, encoding: pb.Encoding, data: bytes
) -> None:
    """The attributes have the schema, its revision and the encoding. The data are unchanged."""
    revision_id = create(wire, type=type, definition=definition, encoding=encoding)
    publish(wire, data, data).result()
    for received in wire.pull():
        assert received.message.data == data
        assert received.message.attributes == {
            "own": "1",
            "googclient_schemaname": SCHEMA,
            "googclient_schemarevisionid": revision_id,
            "googclient_schemaencoding": pb.Encoding.Name(encoding),
        }


@pytest.mark.parametrize(
    ("type", "definition", "encoding", "data", "reason", "status"),
    [
        (
            pb.Schema.AVRO,
            AVRO,
            pb.JSON,
            b'{"people": 1}',
            "INVALID_JSON_AVRO_MESSAGE",
            "Field was not found in JSON object: name.",
        ),
        (
            pb.Schema.AVRO,
            AVRO,
            pb.BINARY,
            IN_AVRO + b"x",
            "INVALID_BINARY_AVRO_MESSAGE",
            "Too much data to parse for schema.",
        ),
        (
            pb.Schema.PROTOCOL_BUFFER,
            PROTO,
            pb.BINARY,
            b"\x12\x01x",
            "INVALID_BINARY_PROTO_MESSAGE",
            "The message has fields that are not in the schema.",
        ),
    ],
    ids=["Avro in JSON", "Avro in binary", "protobuf in binary"],
)
def test_a_publish_with_one_message_that_does_not_match_the_schema_is_refused_as_a_whole(
    wire: Wire,
    type: pb.Schema.Type,
    definition: str,
    encoding: pb.Encoding,
    data: bytes,
    reason: str,
    status: str,
) -> None:
    """The error has the service's text, and details with the cause. Nothing is published."""
    revision_id = create(wire, type=type, definition=definition, encoding=encoding)
    good = {pb.JSON: OHIO, pb.BINARY: IN_AVRO if type == pb.Schema.AVRO else IN_PROTO}[encoding]
    refused = refusal(publish(wire, good, data))
    assert isinstance(refused, errors.InvalidArgument)
    assert refused.message == "Invalid data in message: Message failed schema validation."
    assert refused.reason == reason
    assert refused.metadata == {
        "message": "Message failed schema validation",
        "revisionInfo": "Could not validate message with any schema revision for schema: "
        f"{SCHEMA}, last checked revision: revision_id={revision_id} failed with status: {status}",
    }
    assert wire.pull(wait=False) == []


def test_the_error_text_of_a_schema_mismatch_is_short_enough_for_a_grpc_trailer(wire: Wire) -> None:
    """The reason quotes only a part of the message."""
    create(wire)
    data = json.dumps({"name": "Ohio", "x" * 100_000: 1}).encode()
    assert refusal(publish(wire, data)).reason == "INVALID_JSON_AVRO_MESSAGE"


def test_a_committed_schema_revision_applies_to_the_next_publish(wire: Wire) -> None:
    """The revision applies to topics without a fixed range of revisions."""
    create(wire)
    richer = AVRO.replace("]", ', {"name": "people", "type": "int", "default": 0}]')
    with_people = b'{"name": "Ohio", "people": 1}'
    assert refusal(publish(wire, with_people)).reason
    commit = pb.CommitSchemaRequest(
        name=SCHEMA, schema=pb.Schema(type=pb.Schema.AVRO, definition=richer)
    )
    revision_id = wire.call("CommitSchema", commit).revision_id
    publish(wire, with_people).result()
    (received,) = wire.pull()
    assert received.message.attributes["googclient_schemarevisionid"] == revision_id


def test_a_topic_whose_schema_is_deleted_refuses_messages(wire: Wire) -> None:
    """The topic reports the deletion, even if another schema gets the same name."""
    create(wire)
    delete_schema(wire)
    assert topic_of(wire).schema_settings.schema == names.DELETED_SCHEMA
    request = pb.CreateSchemaRequest(
        parent=PROJECT,
        schema_id="states",
        schema=pb.Schema(type=pb.Schema.AVRO, definition=AVRO),
    )
    wire.call("CreateSchema", request)
    refused = refusal(publish(wire, OHIO))
    assert isinstance(refused, errors.NotFound)
    assert refused.message == "Schema associated with topic deleted."


def update(wire: Wire, topic: pubsub.Topic, *paths: str) -> Any:
    request = pubsub.UpdateTopicRequest(topic=topic)
    request.topic.name = TOPIC
    request.update_mask.paths.extend(paths)
    return wire.start("UpdateTopic", request)


def test_a_topic_whose_schema_is_deleted_can_be_updated(wire: Wire) -> None:
    """Both its other settings and its schema can change.

    Without a schema it accepts all messages.
    """
    create(wire)
    delete_schema(wire)
    update(wire, pubsub.Topic(labels={"a": "b"}), "labels").result()
    update(wire, pubsub.Topic(), "schema_settings").result()
    publish(wire, b"anything").result()
    (received,) = wire.pull()
    assert received.message.attributes == {"own": "1"}


def test_a_topic_update_can_add_a_schema_to_an_existing_topic(wire: Wire) -> None:
    """Later messages are validated, within the bounds that are set."""
    first = create(wire)
    settings = pubsub.SchemaSettings(schema=SCHEMA, encoding=pb.BINARY, first_revision_id=first)
    update(wire, pubsub.Topic(schema_settings=settings), "schema_settings").result()
    assert refusal(publish(wire, OHIO)).reason == "INVALID_BINARY_AVRO_MESSAGE"
    publish(wire, IN_AVRO).result()


BAD_SETTINGS = [
    (pubsub.SchemaSettings(schema=f"{PROJECT}/schemas/other", encoding=pb.JSON), errors.NotFound),
    (pubsub.SchemaSettings(schema="states", encoding=pb.JSON), errors.InvalidArgument),
    (pubsub.SchemaSettings(schema=SCHEMA), errors.InvalidArgument),
    (
        pubsub.SchemaSettings(schema=SCHEMA, encoding=pb.JSON, first_revision_id="0a0a0a0a"),
        errors.NotFound,
    ),
]


@pytest.mark.parametrize(("settings", "error"), BAD_SETTINGS)
def test_invalid_schema_settings_of_a_topic_are_refused(
    wire: Wire, settings: pubsub.SchemaSettings, error: type[errors.RpcError]
) -> None:
    """The settings are refused at once, for a new topic and for an existing one."""
    create(wire)
    before = topic_of(wire)
    other = pubsub.Topic(name=f"{PROJECT}/topics/other", schema_settings=settings)
    assert isinstance(refusal(wire.start("CreateTopic", other)), error)
    changed = update(wire, pubsub.Topic(schema_settings=settings), "schema_settings")
    assert isinstance(refusal(changed), error)
    assert topic_of(wire) == before


def test_publishing_a_message_with_an_attribute_reserved_for_schemas_is_refused(wire: Wire) -> None:
    """The prefix of the attributes is reserved."""
    create(wire)
    message = pubsub.PubsubMessage(data=OHIO, attributes={"googclient_schemaname": "x"})
    call = wire.start("Publish", pubsub.PublishRequest(topic=TOPIC, messages=[message]))
    assert isinstance(refusal(call), errors.InvalidArgument)


def test_deleting_a_schema_or_topic_deletes_its_iam_policy(wire: Wire) -> None:
    """The same holds for a subscription."""
    create(wire)
    binding = iam.Binding(role="roles/pubsub.viewer", members=["allUsers"])
    deletions: dict[str, Callable[[], object]] = {
        SCHEMA: lambda: delete_schema(wire),
        SUBSCRIPTION: wire.delete_subscription,
        TOPIC: lambda: wire.call("DeleteTopic", pubsub.DeleteTopicRequest(topic=TOPIC)),
    }
    for resource, delete in deletions.items():
        request = iam.SetIamPolicyRequest(resource=resource, policy=iam.Policy(bindings=[binding]))
        assert list(wire.call("SetIamPolicy", request).bindings) == [binding]
        delete()
        gone = wire.start("GetIamPolicy", iam.GetIamPolicyRequest(resource=resource))
        assert isinstance(refusal(gone), errors.NotFound)
    wire.call("CreateTopic", pubsub.Topic(name=TOPIC))
    told = wire.call("GetIamPolicy", iam.GetIamPolicyRequest(resource=TOPIC))
    assert list(told.bindings) == []
    asked = iam.TestIamPermissionsRequest(resource=TOPIC, permissions=["pubsub.topics.publish"])
    assert list(wire.call("TestIamPermissions", asked).permissions) == ["pubsub.topics.publish"]


def test_compiling_a_schema_definition_does_not_block_other_calls(wire: Wire) -> None:
    """Many other calls are answered in the meantime."""
    wire.create()
    # A definition that was never compiled before.
    definition = f"{PROTO} // {uuid.uuid4()}"
    schema = pb.Schema(type=pb.Schema.PROTOCOL_BUFFER, definition=definition)
    request = pb.CreateSchemaRequest(parent=PROJECT, schema_id="states", schema=schema)
    creating = wire.start("CreateSchema", request)
    answered = 0
    while not creating.done():
        wire.publish("meanwhile")
        answered += 1
    assert creating.result().name == SCHEMA
    assert answered > 5
