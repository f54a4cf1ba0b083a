"""Schemas of the type PROTOCOL_BUFFER."""

from __future__ import annotations

import json

from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from protocol.messages import schema_pb2 as pb

from .definition import BadDefinition, Definition, Incompatible, Mismatch
from .protobuf_compatibility import check_compatible
from .protoc import compile_source


class ProtobufDefinition:
    """A message type, in a descriptor pool of its own: no two schemas can clash over a name."""

    def __init__(self, pool: DescriptorPool, root: Descriptor) -> None:
        self._pool = pool
        self._root = root
        self._message_class = message_factory.GetMessageClass(root)

    @classmethod
    def from_source(cls, text: str) -> ProtobufDefinition:
        """The one message type that a .proto file defines.

        Raises:
            BadDefinition: it does not compile, imports others, or has more messages or none.
        """
        file = compile_source(text)
        if file.dependency:
            raise BadDefinition(f'import "{file.dependency[0]}" is not supported')
        if len(file.message_type) != 1:
            raise BadDefinition(
                f"one top-level message type is needed, it has {len(file.message_type)}"
            )
        package = f"{file.package}." if file.package else ""
        return cls._from_files([file], package + file.message_type[0].name)

    @classmethod
    def from_compiled(cls, compiled: pb.CompiledProtoSchema) -> ProtobufDefinition:
        """The root message of a FileDescriptorSet, as `protoc --include_imports` writes it."""
        try:
            files = FileDescriptorSet.FromString(compiled.compiled_bytes).file
        except DecodeError:
            raise BadDefinition("compiled_bytes is not a FileDescriptorSet") from None
        return cls._from_files(list(files), compiled.root_message)

    @classmethod
    def _from_files(cls, files: list[FileDescriptorProto], root: str) -> ProtobufDefinition:
        pool = DescriptorPool()
        try:
            for file in files:
                pool.AddSerializedFile(file.SerializeToString())
            return cls(pool, pool.FindMessageTypeByName(root))
        except TypeError as error:
            raise BadDefinition(str(error)) from None
        except KeyError:
            raise BadDefinition(f"message type {root} is not in it") from None

    def check(self, data: bytes, encoding: pb.Encoding) -> None:
        if encoding == pb.JSON:
            self._check_json(data)
        else:
            self._check_binary(data)

    def check_follows(self, older: Definition) -> None:
        if not isinstance(older, ProtobufDefinition):
            raise Incompatible("the type of a schema cannot change")
        check_compatible(self._root, older._root)

    def _check_json(self, data: bytes) -> None:
        message = self._message_class()
        try:
            value = json.loads(data.decode())
            if not isinstance(value, dict):
                raise Mismatch("The message is not a JSON object.")
            json_format.ParseDict(value, message, descriptor_pool=self._pool)
        except RecursionError:
            raise Mismatch("The message nests too deeply.") from None
        except (json_format.ParseError, ValueError) as error:
            raise Mismatch(str(error)) from None
        if not message.IsInitialized():
            raise Mismatch("A required field is missing.")

    def _check_binary(self, data: bytes) -> None:
        message = self._message_class()
        try:
            message.ParseFromString(data)
        except DecodeError as error:
            raise Mismatch(str(error)) from None
        if not message.IsInitialized():
            raise Mismatch("A required field is missing.")
        # The service takes no message with fields that no revision knows.
        size = message.ByteSize()
        message.DiscardUnknownFields()
        if message.ByteSize() != size:
            raise Mismatch("The message has fields that are not in the schema.")
