"""Generates hostile requests from the descriptors of their messages.

Most requests name existing resources, so that their other fields are examined, too.
"""

from __future__ import annotations

import os
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.emulator.broker import PROJECT, SNAPSHOT, SUBSCRIPTION, TOPIC

# PULLSTREAM_FUZZ_EXAMPLES=10000 searches longer than the normal suite, with other examples each
# time.
EXAMPLES = int(os.environ.get("PULLSTREAM_FUZZ_EXAMPLES", "0"))
SEARCH = settings(
    max_examples=EXAMPLES or 12,
    derandomize=not EXAMPLES,
    database=None,
    suppress_health_check=list(HealthCheck),
)

# The maximum depth of nested messages, and the number of fields that are set in each.
DEPTH = 4
MOST_FIELDS = 5

SCHEMA = f"{PROJECT}/schemas/province"

# The number of wrong resource names out of ten.
WRONG_OF_TEN = 1

# Kinds of resources that a field names, by field.
NAMED = {
    "topic": TOPIC,
    "dead_letter_topic": TOPIC,
    "subscription": SUBSCRIPTION,
    "snapshot": SNAPSHOT,
    "schema": SCHEMA,
    "resource": TOPIC,
    "project": PROJECT,
    "parent": PROJECT,
}
# Kinds of resources that the field `name` names, by the message that contains it.
OWN_NAMES = {
    "Topic": TOPIC,
    "Subscription": SUBSCRIPTION,
    "Snapshot": SNAPSHOT,
    "Schema": SCHEMA,
    "CreateSnapshotRequest": SNAPSHOT,
    **dict.fromkeys(
        (
            *("GetSchemaRequest", "ListSchemaRevisionsRequest", "CommitSchemaRequest"),
            *("RollbackSchemaRequest", "DeleteSchemaRevisionRequest", "DeleteSchemaRequest"),
            "ValidateMessageRequest",
        ),
        SCHEMA,
    ),
}
# Requests that create a resource. With an existing name, their other fields are not examined.
CREATING = {"Topic", "Subscription", "CreateSnapshotRequest"}

NAMES = [
    *(TOPIC, SUBSCRIPTION, PROJECT, SNAPSHOT, SCHEMA),
    f"{SCHEMA}@0000000g",
    *(f"{PROJECT}/topics/{name}" for name in ("missing", "goog-reserved", "a", "x" * 300)),
    *("_deleted-topic_", "projects//topics/orders", "projects/test", "projects/test/", "/"),
]
TEXTS = [
    *("", "\0", "\N{SNOWMAN}" * 100, "x" * 100_000, "../../etc/passwd", "%s%n{0}"),
    'attributes.a = "b"',
    "NOT " * 60 + "attributes:a",
    "(" * 250,
    '{"type": "record", "name": "A", "fields": []}',
    '{"type": ' * 1000,
    'syntax = "proto3"; message A { A a = 1; }',
    "http://localhost:1/",
    "googclient_schemaencoding",
    "projects/test/subscriptions/billing:1",
]
PATHS = [
    *("labels", "filter", "name", "topic", "push_config", "ack_deadline_seconds", "retry_policy"),
    *("expire_time", "dead_letter_policy", "schema_settings", "message_retention_duration"),
    *("", ".", "*", "labels.a", "push_config.push_endpoint", "pushConfig", "nonsense", "x" * 9999),
]
INTEGERS = [0, 1, -1, 9, 10, 600, 601, 1000, 2**31 - 1, -(2**31)]
LONG_INTEGERS = [*INTEGERS, 2**63 - 1, -(2**63)]

_SCALARS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_STRING: st.sampled_from([*NAMES, *TEXTS]) | st.text(max_size=20),
    FieldDescriptor.TYPE_BYTES: st.sampled_from([b"", b"\xff", b"x" * 100_000, b'{"a": 1}'])
    | st.binary(max_size=20),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_INT32: st.sampled_from(INTEGERS),
    FieldDescriptor.TYPE_INT64: st.sampled_from(LONG_INTEGERS),
    FieldDescriptor.TYPE_FIXED64: st.sampled_from([0, 1, 2**64 - 1]),
    FieldDescriptor.TYPE_ENUM: st.sampled_from([0, 1, 2, 3, 99, -1]),
    FieldDescriptor.TYPE_DOUBLE: st.floats(),
}


def requests(kind: type[Message]) -> st.SearchStrategy[Message]:
    """Generate messages of that kind. Each field is either right or wrong."""
    fields = _messages(kind.DESCRIPTOR, DEPTH)
    own = OWN_NAMES.get(kind.DESCRIPTOR.name)
    if own is not None and kind.DESCRIPTOR.name in CREATING:
        new = st.uuids().map(lambda number: f"{own}-{number}")
        fields = st.tuples(fields, _mostly(new)).map(lambda both: {**both[0], "name": both[1]})
    return fields.map(lambda some: kind(**some))


def _messages(descriptor: Any, depth: int) -> st.SearchStrategy[dict[str, Any]]:
    """Generate a message with some of its fields, by name.

    Fields that identify the subject are always set.
    """
    if descriptor.full_name == "google.protobuf.FieldMask":
        return st.fixed_dictionaries({"paths": st.lists(st.sampled_from(PATHS), max_size=3)})
    fields = [field for field in descriptor.fields if depth or field.message_type is None]
    if not fields:
        return st.just({})
    naming = {
        field.name: _mostly(st.just(right))
        for field in fields
        if (right := _right_name(field)) is not None
    }
    subjects = [field for field in fields if _is_subject(field)]
    chosen = st.lists(st.sampled_from(fields), unique_by=lambda f: f.name, max_size=MOST_FIELDS)
    return chosen.flatmap(
        lambda some: st.fixed_dictionaries(
            {**{field.name: _values(field, depth) for field in [*some, *subjects]}, **naming}
        )
    )


def _is_subject(field: Any) -> bool:
    """Return whether a request needs that field: the object of an update, and the mask."""
    if field.message_type is None or _is_repeated(field):
        return False
    return field.message_type.name in {"Topic", "Subscription", "Snapshot", "Schema", "FieldMask"}


def _right_name(field: Any) -> str | None:
    """Return the name in that field in most requests, or None if the field is no resource name."""
    if field.type != FieldDescriptor.TYPE_STRING or _is_repeated(field):
        return None
    if field.name == "name":
        return OWN_NAMES.get(field.containing_type.name)
    return NAMED.get(field.name)


def _mostly(right: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    wrong = _SCALARS[FieldDescriptor.TYPE_STRING]
    return st.integers(1, 10).flatmap(lambda n: right if n > WRONG_OF_TEN else wrong)


def _values(field: Any, depth: int) -> st.SearchStrategy[Any]:
    kind = field.message_type
    if kind is None:
        one = _SCALARS[field.type]
    elif kind.GetOptions().map_entry:
        text = _SCALARS[FieldDescriptor.TYPE_STRING]
        values = _values(kind.fields_by_name["value"], depth - 1)
        many = st.dictionaries(st.text(max_size=3), st.just("a"), min_size=101, max_size=101)
        is_text = kind.fields_by_name["value"].type == FieldDescriptor.TYPE_STRING
        few = st.dictionaries(text, values, max_size=3)
        return few | many if is_text else few
    else:
        one = _messages(kind, depth - 1)
    return st.lists(one, max_size=3) if _is_repeated(field) else one


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated)
