"""Every message of google.pubsub.v1 and google.iam.v1 has its equal here, and no other exists.

If one of these tests fails with a new release of google-cloud-pubsub, Google has added to the
interface: add the same to the .proto file and run `make protos`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from google.iam.v1 import (
    iam_policy_pb2,
    options_pb2,
    policy_pb2,
)
from google.protobuf import descriptor_pb2, json_format
from google.protobuf.descriptor import (
    Descriptor,
    EnumDescriptor,
    FieldDescriptor,
    FileDescriptor,
)
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.pubsub_v1 import types
from google.type import expr_pb2  # type: ignore[import-untyped]

from pullstream_protocol.messages import iam_pb2, pubsub_pb2, schema_pb2

OUR_FILES: list[FileDescriptor] = [
    pubsub_pb2.DESCRIPTOR,
    schema_pb2.DESCRIPTOR,
    iam_pb2.DESCRIPTOR,
]
GOOGLE_FILES: list[FileDescriptor] = [
    types.Topic.pb().DESCRIPTOR.file,
    types.Schema.pb().DESCRIPTOR.file,
    iam_policy_pb2.DESCRIPTOR,
    options_pb2.DESCRIPTOR,
    policy_pb2.DESCRIPTOR,
    expr_pb2.DESCRIPTOR,
]
# The official Python client renames fields that would hide a builtin. In Google's interface, and so
# in the JSON form, they have the name on the right.
RENAMED_BY_PYTHON_CLIENT = {"pubsub.Schema.type_": "type"}
# More members than any oneof has; each variant sets another member.
VARIANTS = 8
# Deeper than our messages. It ends the walk into google.protobuf.Struct, which contains itself.
DEPTH = 6


def common_name(full_name: str) -> str:
    """Return a name that is the same for Google's message and ours, such as "pubsub.Topic"."""
    for package, short in (
        ("google.pubsub.v1.", "pubsub."),
        ("pullstream.pubsub.v1.", "pubsub."),
        ("google.iam.v1.", "iam."),
        ("pullstream.iam.v1.", "iam."),
        ("google.type.", "iam."),
    ):
        if full_name.startswith(package):
            return short + full_name.removeprefix(package)
    return full_name


def all_messages(messages: Iterable[Descriptor]) -> Iterator[Descriptor]:
    """Yield messages and their nested messages, except for the entries of maps."""
    for message in messages:
        if not message.GetOptions().map_entry:
            yield message
            yield from all_messages(message.nested_types)


def messages_of(files: list[FileDescriptor]) -> dict[str, Descriptor]:
    """Return every message of some files by its common name."""
    tops = [message for file in files for message in file.message_types_by_name.values()]
    return {common_name(message.full_name): message for message in all_messages(tops)}


def enums_of(files: list[FileDescriptor]) -> dict[str, EnumDescriptor]:
    """Return every enum of some files by its common name."""
    nested = [enum for message in messages_of(files).values() for enum in message.enum_types]
    tops = [enum for file in files for enum in file.enum_types_by_name.values()]
    return {common_name(enum.full_name): enum for enum in [*tops, *nested]}


OURS = messages_of(OUR_FILES)
GOOGLES = messages_of(GOOGLE_FILES)
OUR_ENUMS = enums_of(OUR_FILES)
GOOGLE_ENUMS = enums_of(GOOGLE_FILES)
# Messages that one side lacks fail in the tests of the names.
COMMON = sorted(OURS.keys() & GOOGLES.keys())
COMMON_ENUMS = sorted(OUR_ENUMS.keys() & GOOGLE_ENUMS.keys())


def map_entry(field: FieldDescriptor) -> Descriptor | None:
    """Return the message of a map field's entries, or None if the field is no map."""
    kind = field.message_type
    return kind if kind is not None and kind.GetOptions().map_entry else None


def raw_fields(message: Descriptor) -> list[descriptor_pb2.FieldDescriptorProto]:
    """Return a message's fields as the compiler wrote them, by number."""
    proto = descriptor_pb2.DescriptorProto()
    message.CopyToProto(proto)
    return sorted(proto.field, key=lambda field: field.number)


def fields_as_data(message: Descriptor) -> dict[int, dict[str, object]]:
    """Return all properties of a message's fields on the wire and in JSON, by number."""
    described: dict[int, dict[str, object]] = {}
    for raw in raw_fields(message):
        field = message.fields_by_number[raw.number]
        target = field.message_type or field.enum_type
        name = f"{common_name(message.full_name)}.{raw.name}"
        entry = map_entry(field)
        described[raw.number] = {
            "name": RENAMED_BY_PYTHON_CLIENT.get(name, raw.name),
            "json name": field.json_name,
            "type": descriptor_pb2.FieldDescriptorProto.Type.Name(raw.type),
            # The entry of a map is compared by its fields.
            "of": fields_as_data(entry) if entry else target and common_name(target.full_name),
            "label": descriptor_pb2.FieldDescriptorProto.Label.Name(raw.label),
            "oneof": field.containing_oneof and field.containing_oneof.name,
            "optional": raw.proto3_optional,
            "presence": field.has_presence,
        }
    return described


def sample_scalar(field: FieldDescriptor, salt: int) -> object:
    """Return a value that is not the default and differs from field to field."""
    if field.enum_type is not None:
        numbers = sorted(value.number for value in field.enum_type.values)
        # An enum of one value (google.protobuf.NullValue) has only its default.
        return numbers[1:][salt % (len(numbers) - 1)] if numbers[1:] else numbers[0]
    samples: dict[int, object] = {
        FieldDescriptor.TYPE_STRING: f"text{field.number}x{salt}",
        FieldDescriptor.TYPE_BYTES: bytes([0, 255, field.number, salt]),
        FieldDescriptor.TYPE_BOOL: True,
        FieldDescriptor.TYPE_INT32: field.number + salt,
        FieldDescriptor.TYPE_INT64: 2**33 + field.number + salt,
        FieldDescriptor.TYPE_DOUBLE: field.number + 0.5,
    }
    return samples[field.type]


def fill(message: Any, kind: Descriptor, variant: int, depth: int = DEPTH) -> None:
    """Set every field of a message, and of each oneof the member that the variant chooses.

    The values follow from the numbers alone, so two definitions of one message are filled alike
    even if they differ in other ways.
    """
    chosen = set()
    for oneof in kind.oneofs:
        members = sorted(member.number for member in oneof.fields)
        chosen.add(members[variant % len(members)])
    for raw in raw_fields(kind):
        field = kind.fields_by_number[raw.number]
        if field.containing_oneof is not None and raw.number not in chosen:
            continue
        value = getattr(message, raw.name)
        entry = map_entry(field)
        repeated = raw.label == descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
        if entry is not None:
            fill_map(value, entry, variant, depth)
        elif field.message_type is not None:
            for place in (value.add(), value.add()) if repeated else (value,):
                # Present even when it is empty, or when the walk ends here.
                place.SetInParent()
                if depth:
                    fill(place, field.message_type, variant, depth - 1)
        elif repeated:
            value.extend([sample_scalar(field, variant), sample_scalar(field, variant + 1)])
        else:
            setattr(message, raw.name, sample_scalar(field, variant))


def fill_map(entries: Any, entry: Descriptor, variant: int, depth: int) -> None:
    """Put two entries into a map field."""
    key_field, value_field = entry.fields_by_name["key"], entry.fields_by_name["value"]
    for salt in (variant, variant + 1):
        key = sample_scalar(key_field, salt)
        if value_field.message_type is None:
            entries[key] = sample_scalar(value_field, salt)
        elif depth:
            fill(entries[key], value_field.message_type, variant, depth - 1)


def filled(kind: Descriptor, variant: int) -> Message:
    """Return a message of a kind with every field set."""
    message = GetMessageClass(kind)()
    fill(message, kind, variant)
    return message


def test_the_protobuf_files_of_pullstream_define_exactly_the_messages_of_google_pubsub() -> None:
    """No message of Google's is missing, and no other is defined."""
    assert len(GOOGLES) > 100
    assert sorted(OURS) == sorted(GOOGLES)


def test_the_protobuf_files_of_pullstream_define_exactly_the_enums_of_google_pubsub() -> None:
    """No enum of Google's is missing, and no other is defined."""
    assert len(GOOGLE_ENUMS) > 15
    assert sorted(OUR_ENUMS) == sorted(GOOGLE_ENUMS)


@pytest.mark.parametrize("name", COMMON)
def test_the_fields_of_pullstreams_protobuf_messages_are_the_same_as_googles(name: str) -> None:
    """Each field agrees in name, number, type, label, oneof, presence and JSON name."""
    assert fields_as_data(OURS[name]) == fields_as_data(GOOGLES[name])


@pytest.mark.parametrize("name", COMMON)
def test_the_oneofs_of_pullstreams_protobuf_messages_are_the_same_as_googles(name: str) -> None:
    """The oneofs have the same names, and neither side has more."""
    ours = sorted(oneof.name for oneof in OURS[name].oneofs)
    assert ours == sorted(oneof.name for oneof in GOOGLES[name].oneofs)


@pytest.mark.parametrize("name", COMMON_ENUMS)
def test_the_values_of_pullstreams_protobuf_enums_are_the_same_as_googles(name: str) -> None:
    """Each value has the same name and number."""
    ours = {value.name: value.number for value in OUR_ENUMS[name].values}
    assert ours == {value.name: value.number for value in GOOGLE_ENUMS[name].values}


@pytest.mark.parametrize("name", COMMON)
def test_a_pullstream_message_converted_to_googles_and_back_keeps_every_field(
    name: str,
) -> None:
    """Each side reads the other's messages, as bytes and as JSON."""
    for variant in range(VARIANTS):
        ours = filled(OURS[name], variant)
        googles = filled(GOOGLES[name], variant)

        assert type(googles).FromString(ours.SerializeToString()) == googles
        assert type(ours).FromString(googles.SerializeToString()) == ours
        # Unlike the comparison above, this one ignores fields that one side does not know.
        assert json_format.MessageToDict(ours) == json_format.MessageToDict(googles)


def test_the_messages_of_the_protobuf_conversion_test_set_every_field() -> None:
    """Over all variants every field is set, so the round trip above is complete."""
    for name in COMMON:
        set_numbers = {
            field.number
            for variant in range(VARIANTS)
            for field, _ in filled(OURS[name], variant).ListFields()
        }
        assert set_numbers == set(OURS[name].fields_by_number), name
