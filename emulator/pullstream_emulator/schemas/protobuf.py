"""Schemas of the type PROTOCOL_BUFFER."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from pullstream_protocol.messages import schema_pb2 as pb

from .definition import BadDefinition, Definition, Incompatible, Mismatch
from .protobuf_compatibility import check_compatible
from .protoc import compile_source

# Most bytes of a message that is decoded, at most about 20 ms of work.
_MAX_DECODED = 160_000


class ProtobufDefinition:
    """A message type in a separate descriptor pool, so that names of two schemas cannot clash."""

    def __init__(self, pool: DescriptorPool, root: Descriptor) -> None:
        self._pool = pool
        self._root = root
        self._message_class = message_factory.GetMessageClass(root)

    @classmethod
    def from_source(cls, text: str) -> ProtobufDefinition:
        """Return the only message type that a .proto file defines.

        Raises:
            BadDefinition: The file does not compile, has imports, or does not have exactly one
                top-level message type.
        """
        file = compile_source(text)
        if file.dependency:
            raise BadDefinition(f'import "{file.dependency[0]}" is not supported')
        if len(file.message_type) != 1:
            raise BadDefinition(
                f"exactly one top-level message type is allowed, not {len(file.message_type)}"
            )
        package = f"{file.package}." if file.package else ""
        return cls.from_files(FileDescriptorSet(file=[file]), package + file.message_type[0].name)

    @classmethod
    def from_compiled(cls, compiled: pb.CompiledProtoSchema) -> ProtobufDefinition:
        """Return the root message of a FileDescriptorSet from `protoc --include_imports`."""
        try:
            files = FileDescriptorSet.FromString(compiled.compiled_bytes)
        except DecodeError:
            raise BadDefinition("compiled_bytes is not a FileDescriptorSet") from None
        return cls.from_files(files, compiled.root_message)

    @classmethod
    def from_files(cls, files: FileDescriptorSet, root: str) -> ProtobufDefinition:
        """Return the message type with the full name `root`.

        Raises:
            BadDefinition: The files are invalid, incomplete, or lack this message type.
        """
        pool = DescriptorPool()
        try:
            for file in files.file:
                pool.AddSerializedFile(file.SerializeToString())
            return cls(pool, pool.FindMessageTypeByName(root))
        except TypeError as error:
            raise BadDefinition(str(error)) from None
        except KeyError:
            raise BadDefinition(f"message type {root} is not in the FileDescriptorSet") from None

    def check(self, data: bytes, encoding: pb.Encoding) -> None:
        """Check a message by parsing it."""
        if encoding == pb.JSON:
            self._check_json(data)
        else:
            self._check_binary(data)

    def decode_binary(self, data: bytes) -> Any:
        """Return a message as a JSON value, with the fields' names of the definition."""
        if len(data) > _MAX_DECODED:
            raise Mismatch("The message is too large to be decoded.")
        message = self._message_class()
        try:
            message.ParseFromString(data)
        except DecodeError as error:
            raise Mismatch(str(error)) from None
        return json_format.MessageToDict(
            message, preserving_proto_field_name=True, descriptor_pool=self._pool
        )

    def check_follows(self, older: Definition) -> None:
        """Raise Incompatible unless `older` is a Protobuf schema and both can read all messages."""
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
        # The real service refuses a message with fields that are in no revision.
        size = message.ByteSize()
        message.DiscardUnknownFields()
        if message.ByteSize() != size:
            raise Mismatch("The message has fields that are not in the schema.")
