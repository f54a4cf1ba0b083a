"""The checked-in generated modules agree with their .proto files."""

import ast
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FileDescriptor

from pullstream_protocol.messages import generate
from tests.completed import run_command

NAMES = [Path(name).stem for name in generate.proto_files()]
FORGOTTEN = "run `make protos`"


@pytest.fixture(scope="module")
def compiled(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, descriptor_pb2.FileDescriptorProto]:
    """Compile the .proto files, and return the results by file name, such as "pubsub"."""
    target = tmp_path_factory.mktemp("descriptors") / "set.pb"
    command = [
        *(sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={generate.ROOT}"),
        *(f"--descriptor_set_out={target}", *generate.proto_files()),
    ]
    result = run_command(command)
    assert result.returncode == 0, result.stderr
    files = descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes()).file
    return {Path(file.name).stem: file for file in files}


def generated(name: str) -> FileDescriptor:
    """Return the descriptor of the checked-in module."""
    descriptor: FileDescriptor = import_module(
        f"pullstream_protocol.messages.{name}_pb2"
    ).DESCRIPTOR
    return descriptor


def as_proto(descriptor: FileDescriptor) -> descriptor_pb2.FileDescriptorProto:
    """Return a descriptor in the form that the compiler writes."""
    proto = descriptor_pb2.FileDescriptorProto()
    descriptor.CopyToProto(proto)
    return proto


def all_messages(
    file: descriptor_pb2.FileDescriptorProto,
) -> Iterator[tuple[str, descriptor_pb2.DescriptorProto]]:
    """Yield each message of a file with its dotted name, including nested ones and map entries."""

    def walk(
        prefix: str, messages: list[descriptor_pb2.DescriptorProto]
    ) -> Iterator[tuple[str, descriptor_pb2.DescriptorProto]]:
        for message in messages:
            yield prefix + message.name, message
            yield from walk(f"{prefix}{message.name}.", list(message.nested_type))

    yield from walk("", list(file.message_type))


def default_json_name(name: str) -> str:
    """Return the JSON name of a field whose .proto file does not define one."""
    first, *others = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in others)


def without_default_json_names(
    file: descriptor_pb2.FileDescriptorProto,
) -> descriptor_pb2.FileDescriptorProto:
    """Return a copy that keeps only unusual JSON names.

    The compiler writes all names into a descriptor set, but only unusual ones into a module.
    """
    copy = descriptor_pb2.FileDescriptorProto()
    copy.CopyFrom(file)
    for _, message in all_messages(copy):
        for field in message.field:
            if field.json_name == default_json_name(field.name):
                field.ClearField("json_name")
    return copy


class Stub:
    """The names that a .pyi file declares, by dotted path."""

    def __init__(self, path: Path) -> None:
        self.classes: set[str] = set()
        self.attributes: set[str] = set()
        self.arguments: dict[str, list[str]] = {}
        self._read("", ast.parse(path.read_text(encoding="utf-8")).body)

    def _read(self, prefix: str, body: list[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, ast.ClassDef):
                name = prefix + statement.name
                self.classes.add(name)
                self._read(f"{name}.", statement.body)
            elif isinstance(statement, ast.AnnAssign):
                assert isinstance(statement.target, ast.Name)
                self.attributes.add(prefix + statement.target.id)
            elif isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
                arguments = statement.args
                names = [each.arg for each in [*arguments.args[1:], *arguments.kwonlyargs]]
                self.arguments[prefix.removesuffix(".")] = names


def test_each_proto_file_has_generated_modules_and_each_module_has_a_proto_file() -> None:
    """A .proto file without a module fails, and so does a module without a .proto file."""
    assert NAMES
    folder = generate.FOLDER
    assert sorted(path.name for path in folder.glob("*_pb2.py")) == [f"{n}_pb2.py" for n in NAMES]
    assert sorted(path.name for path in folder.glob("*_pb2.pyi")) == [f"{n}_pb2.pyi" for n in NAMES]


@pytest.mark.parametrize("name", NAMES)
def test_a_generated_protobuf_module_has_the_definitions_of_its_proto_file(
    name: str, compiled: dict[str, descriptor_pb2.FileDescriptorProto]
) -> None:
    """A .proto file fails that was changed without generating its module again."""
    expected = without_default_json_names(compiled[name])
    actual = without_default_json_names(as_proto(generated(name)))
    assert actual == expected, f"{name}_pb2.py is out of date: {FORGOTTEN}"


@pytest.mark.parametrize("name", NAMES)
def test_generated_protobuf_modules_come_from_the_pinned_compiler_version(name: str) -> None:
    """A module fails that a newer compiler wrote, because it refuses older protobuf versions."""
    module = (generate.FOLDER / f"{name}_pb2.py").read_text(encoding="utf-8")
    assert f"# Protobuf Python Version: {generate.PROTOBUF_VERSION}\n" in module, FORGOTTEN


@pytest.mark.parametrize("name", NAMES)
def test_a_generated_protobuf_stub_declares_each_message_field_and_enum_value(
    name: str, compiled: dict[str, descriptor_pb2.FileDescriptorProto]
) -> None:
    """The .pyi file has everything of the .proto file, and no other class."""
    file = compiled[name]
    classes: set[str] = set()
    attributes: set[str] = set()

    def expect_enums(prefix: str, enums: list[descriptor_pb2.EnumDescriptorProto]) -> None:
        for enum in enums:
            classes.add(prefix + enum.name)
            # As in C, a value belongs to its enum and to the scope that contains the enum.
            attributes.update(f"{prefix}{enum.name}.{value.name}" for value in enum.value)
            attributes.update(prefix + value.name for value in enum.value)

    arguments: dict[str, list[str]] = {}
    expect_enums("", list(file.enum_type))
    for path, message in all_messages(file):
        fields = [field.name for field in message.field]
        classes.add(path)
        attributes.update(f"{path}.{field}" for field in fields)
        expect_enums(f"{path}.", list(message.enum_type))
        if fields:
            arguments[path] = fields

    stub = Stub(generate.FOLDER / f"{name}_pb2.pyi")
    assert attributes - stub.attributes == set(), FORGOTTEN
    assert stub.classes == classes, FORGOTTEN
    # A bool field is keyword-only in a stub, so the order does not matter.
    found = {path: sorted(names) for path, names in stub.arguments.items() if names}
    assert found == {path: sorted(names) for path, names in arguments.items()}, FORGOTTEN
