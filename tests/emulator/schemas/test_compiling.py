"""Validation of messages and definitions that takes too long for the event loop."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from pullstream_emulator import Emulator
from pullstream_emulator.schemas.compiling import compile_schema
from pullstream_emulator.schemas.enforcement import Rules
from pullstream_emulator.schemas.protoc import compile_source
from pullstream_protocol import errors
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.messages import schema_pb2 as pb
from tests.bench import stalls
from tests.emulator.broker import PROJECT, SUBSCRIPTION, TOPIC
from tests.emulator.loop_steps import measured_steps, on_this_machine
from tests.emulator.wire import TIMEOUT, Wire

SCHEMA = f"{PROJECT}/schemas/large"
INTS = json.dumps({"type": "array", "items": "int"})
LONGS = json.dumps({"type": "array", "items": "long"})

# In JSON. Its validation takes a second.
LARGE = b"[" + b"1," * 1_500_000 + b"1]"
SMALL = b"[1]"

# Limit of one step, in CPU seconds. Copies of 9 MB take most of it.
LONGEST_STEP = 0.2


class HeldChecks:
    """Holds each check that runs on a thread, until `release`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._released = threading.Event()
        self._begun = threading.Event()
        check = Rules.check

        def hold(rules: Rules, data: Iterable[bytes]) -> list[str]:
            if threading.current_thread().name != "pullstream-emulator":
                self._begun.set()
                assert self._released.wait(TIMEOUT)
            return check(rules, data)

        monkeypatch.setattr(Rules, "check", hold)

    def begin(self, wire: Wire, key: str = "") -> Any:
        """Start a large publish, and return its future when a thread checks it."""
        future = publish(wire, LARGE, key)
        assert self._begun.wait(TIMEOUT)
        return future

    def release(self) -> None:
        self._released.set()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldChecks]:
    checks = HeldChecks(monkeypatch)
    yield checks
    checks.release()


def create(wire: Wire, definition: str = INTS, encoding: pb.Encoding = pb.JSON) -> str:
    kind = pb.Schema.PROTOCOL_BUFFER if definition is stalls.PROTO else pb.Schema.AVRO
    request = pb.CreateSchemaRequest(
        parent=PROJECT, schema_id="large", schema=pb.Schema(type=kind, definition=definition)
    )
    revision_id: str = wire.call("CreateSchema", request).revision_id
    settings = pubsub.SchemaSettings(schema=SCHEMA, encoding=encoding)
    wire.call("CreateTopic", pubsub.Topic(name=TOPIC, schema_settings=settings))
    wire.call(
        "CreateSubscription",
        pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC, enable_message_ordering=True),
    )
    return revision_id


def publish(wire: Wire, data: bytes, key: str = "") -> Any:
    """Start a publish and return its future."""
    message = pubsub.PubsubMessage(data=data, ordering_key=key)
    request = pubsub.PublishRequest(topic=TOPIC, messages=[message])
    return wire.start("Publish", request, timeout=60)


def refusal(call: Any) -> errors.RpcError:
    failed = call.exception()
    assert isinstance(failed, grpc.RpcError)
    return errors.from_rpc_error(failed)


def set_schema(wire: Wire, settings: pubsub.SchemaSettings | None) -> None:
    topic = pubsub.Topic(name=TOPIC, schema_settings=settings)
    wire.call(
        "UpdateTopic",
        pubsub.UpdateTopicRequest(topic=topic, update_mask={"paths": ["schema_settings"]}),
    )


# ---- length of event-loop steps ----------------------------------------------------------------


@pytest.mark.parametrize(
    "items",
    [
        {"type": "enum", "name": "e", "symbols": [f"s{number}" for number in range(20_000)]},
        [{"type": "fixed", "size": 1, "name": f"s{number}"} for number in range(4000)],
    ],
    ids=["enum", "union"],
)
def test_many_names_in_an_avro_schema_do_not_slow_down_the_check_of_a_message(items: Any) -> None:
    """No name causes a search of the definition or of the message."""
    count = 20_000
    is_enum = isinstance(items, dict)
    value = '"s19999"' if is_enum else '{"s3999": "x"}'
    started = time.thread_time()
    schema = json.dumps({"type": "array", "items": items})
    definition = compile_schema(pb.Schema(type=pb.Schema.AVRO, definition=schema))
    definition.check(f"[{','.join([value] * count)}]".encode(), pb.JSON)
    assert time.thread_time() - started < on_this_machine(1.0)


@pytest.mark.parametrize(
    "name", ["Avro: ints", "Avro JSON: map", "Protobuf: nested", "Protobuf JSON: map"]
)
def test_a_large_publish_to_a_topic_with_a_schema_does_not_block_the_event_loop(
    emulator: Emulator, wire: Wire, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The messages are published like any others."""
    monkeypatch.setattr(stalls, "SIZE", 3_000_000)
    case = next(case for case in stalls.CASES if case.name == name)
    revision_id = create(wire, case.definition, case.encoding)
    body = case.body()
    with measured_steps() as steps:
        publish(wire, body).result()
    assert steps.longest < on_this_machine(LONGEST_STEP)
    history = emulator.messages(TOPIC)
    (message,) = history
    assert message.data == body
    assert message.attributes["googclient_schemarevisionid"] == revision_id


def test_schema_checks_of_large_append_and_validate_calls_do_not_block_the_event_loop(
    wire: Wire,
) -> None:
    create(wire)
    data = LARGE[:900_000] + b"1]"
    messages = [pubsub.PubsubMessage(data=data)] * 3
    with measured_steps() as steps:
        appended = wire.call("Append", feeds.AppendRequest(topic=TOPIC, messages=messages))
        wire.call(
            "ValidateMessage",
            pb.ValidateMessageRequest(parent=PROJECT, name=SCHEMA, message=LARGE, encoding=pb.JSON),
        )
    assert appended.last_seq == 3
    assert steps.longest < on_this_machine(LONGEST_STEP)


def test_the_schema_check_of_a_small_message_runs_on_the_event_loop(
    wire: Wire, held: HeldChecks
) -> None:
    create(wire)
    publish(wire, b"[" + b"1," * 1000 + b"1]").result()


# ---- outcomes ----------------------------------------------------------------------------------


def test_a_large_message_that_does_not_match_its_schema_is_refused(wire: Wire) -> None:
    revision_id = create(wire)
    refused = refusal(publish(wire, LARGE[:-1] + b',"x"]'))
    assert isinstance(refused, errors.InvalidArgument)
    assert refused.reason == "INVALID_JSON_AVRO_MESSAGE"
    assert refused.metadata is not None
    assert (
        f"revision_id={revision_id} failed with status: JSON object with type string"
        in (refused.metadata["revisionInfo"])
    )
    validate = pb.ValidateMessageRequest(
        parent=PROJECT, name=SCHEMA, message=LARGE[:-1], encoding=pb.JSON
    )
    refused = refusal(wire.start("ValidateMessage", validate))
    assert isinstance(refused, errors.InvalidArgument)
    assert wire.pull(wait=False) == []


def test_messages_of_a_topic_keep_their_order_during_a_slow_schema_check(
    wire: Wire, held: HeldChecks
) -> None:
    create(wire)
    other = f"{PROJECT}/topics/other"
    wire.call("CreateTopic", pubsub.Topic(name=other))
    large = held.begin(wire, key="a")
    later = [publish(wire, SMALL, key) for key in ("a", "a", "b", "")]
    message = pubsub.PubsubMessage(data=b"x")
    wire.call("Publish", pubsub.PublishRequest(topic=other, messages=[message]))
    assert not large.done()
    assert not any(future.done() for future in later)
    held.release()
    ids = [future.result().message_ids[0] for future in (large, *later)]
    assert ids == ["1", "2", "3", "4", "5"]


def test_an_append_repeated_with_its_idempotency_key_during_a_schema_check_is_applied_once(
    wire: Wire,
) -> None:
    create(wire)
    message = pubsub.PubsubMessage(data=LARGE[:900_000] + b"1]", ordering_key="a")
    request = feeds.AppendRequest(topic=TOPIC, messages=[message], idempotency_key="k")
    both = [wire.start("Append", request) for _ in range(2)]
    answers = [future.result() for future in both]
    assert [(answer.last_seq, answer.head_seq) for answer in answers] == [(1, 1), (1, 1)]
    assert sorted(answer.deduped for answer in answers) == [False, True]


def test_a_message_is_published_even_if_its_topic_loses_the_schema_during_the_schema_check(
    emulator: Emulator, wire: Wire, held: HeldChecks
) -> None:
    create(wire)
    large = held.begin(wire)
    set_schema(wire, None)
    held.release()
    large.result()
    (message,) = emulator.messages(TOPIC)
    assert message.attributes == {}


def test_a_message_in_a_schema_check_gets_the_revision_id_committed_during_the_check(
    emulator: Emulator, wire: Wire, held: HeldChecks
) -> None:
    create(wire, LONGS)
    large = held.begin(wire)
    commit = pb.CommitSchemaRequest(
        name=SCHEMA, schema=pb.Schema(type=pb.Schema.AVRO, definition=LONGS, name=SCHEMA)
    )
    revision_id = wire.call("CommitSchema", commit).revision_id
    held.release()
    large.result()
    (message,) = emulator.messages(TOPIC)
    assert message.attributes["googclient_schemarevisionid"] == revision_id


def test_deleting_the_topic_or_schema_during_a_schema_check_ends_the_publish_with_an_error(
    wire: Wire, held: HeldChecks
) -> None:
    create(wire)
    large = held.begin(wire)
    wire.call("DeleteSchema", pb.DeleteSchemaRequest(name=SCHEMA))
    held.release()
    refused = refusal(large)
    assert isinstance(refused, errors.NotFound)
    assert refused.message == "Schema associated with topic deleted."
    wire.call("DeleteTopic", pubsub.DeleteTopicRequest(topic=TOPIC))
    wire.call("DeleteSubscription", pubsub.DeleteSubscriptionRequest(subscription=SUBSCRIPTION))
    create(wire)
    large = publish(wire, LARGE)
    wire.call("DeleteTopic", pubsub.DeleteTopicRequest(topic=TOPIC))
    assert isinstance(refusal(large), errors.NotFound)


def test_a_publish_cancelled_during_its_schema_check_does_not_block_later_publishes(
    wire: Wire, held: HeldChecks
) -> None:
    create(wire)
    large = held.begin(wire, key="a")
    large.cancel()
    assert publish(wire, SMALL, key="a").result().message_ids == ["1"]


def test_stopping_the_broker_ends_a_publish_whose_schema_check_is_running(
    emulator: Emulator, wire: Wire, held: HeldChecks
) -> None:
    create(wire)
    large = held.begin(wire)
    emulator.stop()
    assert isinstance(refusal(large), errors.Unavailable)


def test_messages_in_a_schema_check_count_towards_the_byte_limit_of_the_broker(
    held: HeldChecks,
) -> None:
    with Emulator(max_bytes=5_000_000) as emulator, Wire(emulator.endpoint) as wire:
        create(wire)
        first = held.begin(wire)
        refused = refusal(publish(wire, LARGE))
        assert isinstance(refused, errors.ResourceExhausted)
        held.release()
        first.result()


def test_after_a_restart_stored_protobuf_schemas_are_not_compiled_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compilation takes a separate process and 0.1 s, when the first message needs it."""
    compiling: list[str] = []

    def noting_the_thread(definition: str) -> FileDescriptorProto:
        compiling.append(threading.current_thread().name)
        return compile_source(definition)

    with Emulator(data_dir=tmp_path) as emulator, Wire(emulator.endpoint) as wire:
        create(wire, stalls.PROTO)
    monkeypatch.setattr("pullstream_emulator.schemas.protobuf.compile_source", noting_the_thread)
    with Emulator(data_dir=tmp_path) as emulator, Wire(emulator.endpoint) as wire:
        publish(wire, b'{"i": [1]}').result()
    assert compiling
    assert "pullstream-emulator" not in compiling


def test_committing_a_revision_of_a_large_schema_does_not_block_the_event_loop(wire: Wire) -> None:
    """The schema is compared with every revision, and each branch of a union with every other."""

    def union(*more: str) -> pb.Schema:
        names = [*(f"e{number}" for number in range(3000)), *more]
        branches = [{"type": "enum", "name": name, "symbols": ["A"]} for name in names]
        return pb.Schema(type=pb.Schema.AVRO, definition=json.dumps(branches), name=SCHEMA)

    first = create(wire, union().definition)
    with measured_steps() as steps:
        committed = wire.call("CommitSchema", pb.CommitSchemaRequest(name=SCHEMA, schema=union()))
        larger = pb.CommitSchemaRequest(name=SCHEMA, schema=union("other"))
        refused = refusal(wire.start("CommitSchema", larger))
    assert committed.revision_id != first
    assert isinstance(refused, errors.InvalidArgument)
    assert f"incompatible with previous revision: {committed.revision_id}" in refused.message
    assert steps.longest < on_this_machine(LONGEST_STEP)
