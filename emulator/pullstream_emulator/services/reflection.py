"""gRPC server reflection: the broker describes its services to tools such as grpcurl.

The broker's messages have other names than Google's, so that one process can load the official
client, too. Reflection describes Google's services by Google's names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool

from pullstream_protocol.rpcs import RPCS, Kind, Rpc

SERVICE = "grpc.reflection.v1alpha.ServerReflection"

# The packages of our copies of Google's messages.
_PACKAGES = {
    "pullstream.pubsub.v1": "google.pubsub.v1",
    "pullstream.iam.v1": "google.iam.v1",
}


class ReflectionHandlers(grpc.GenericRpcHandler):
    """The reflection service. Needs the extra `emulator`; without it the service is unknown.

    It is loaded at the first call, because most brokers never need it.
    """

    def __init__(self) -> None:
        self._servicer: Any = None

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of the reflection service; None for all others."""
        if handler_call_details.method != f"/{SERVICE}/ServerReflectionInfo":
            return None
        try:
            from grpc_reflection.v1alpha import reflection, reflection_pb2
        except ImportError:
            return None
        if self._servicer is None:
            services = sorted({rpc.service for rpc in RPCS} | {SERVICE})
            pool = described(RPCS)
            pool.Add(_file_proto(reflection_pb2.DESCRIPTOR))
            self._servicer = reflection.aio.ReflectionServicer(services, pool)
        return grpc.stream_stream_rpc_method_handler(
            self._answer,
            reflection_pb2.ServerReflectionRequest.FromString,
            reflection_pb2.ServerReflectionResponse.SerializeToString,
        )

    async def _answer(self, requests: Any, context: Any) -> None:
        # grpcio's method is an asynchronous generator. Interceptors expect a coroutine.
        async for response in self._servicer.ServerReflectionInfo(requests, context):
            await context.write(response)


def described(rpcs: Iterable[Rpc]) -> DescriptorPool:
    """Return descriptors of RPCs and their messages, with Google's names."""
    pool = DescriptorPool()
    added: set[str] = set()
    services: dict[str, dict[str, descriptor_pb2.ServiceDescriptorProto]] = {}
    files: dict[str, set[str]] = {}
    for rpc in rpcs:
        package, _, name = rpc.service.rpartition(".")
        service = services.setdefault(package, {}).setdefault(
            name, descriptor_pb2.ServiceDescriptorProto(name=name)
        )
        service.method.add(
            name=rpc.method,
            input_type=_renamed(f".{rpc.request.DESCRIPTOR.full_name}"),
            output_type=_renamed(f".{rpc.response.DESCRIPTOR.full_name}"),
            client_streaming=rpc.kind is Kind.BIDI,
            server_streaming=rpc.kind is not Kind.UNARY,
        )
        for message in (rpc.request, rpc.response):
            _add(pool, message.DESCRIPTOR.file, added)
            files.setdefault(package, set()).add(message.DESCRIPTOR.file.name)
    for package, by_name in services.items():
        pool.Add(
            descriptor_pb2.FileDescriptorProto(
                name=f"{package.replace('.', '/')}/services.proto",
                package=package,
                syntax="proto3",
                dependency=sorted(files[package]),
                service=by_name.values(),
            )
        )
    return pool


def _add(pool: DescriptorPool, file: Any, added: set[str]) -> None:
    """Add a file after the files that it imports."""
    if file.name in added:
        return
    added.add(file.name)
    for imported in file.dependencies:
        _add(pool, imported, added)
    proto = _file_proto(file)
    proto.package = _PACKAGES.get(proto.package, proto.package)
    for message in proto.message_type:
        _rename(message)
    pool.Add(proto)


def _file_proto(file: Any) -> descriptor_pb2.FileDescriptorProto:
    proto = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(proto)
    return proto


def _rename(message: descriptor_pb2.DescriptorProto) -> None:
    for field in message.field:
        if field.type_name:
            field.type_name = _renamed(field.type_name)
    for nested in message.nested_type:
        _rename(nested)


def _renamed(type_name: str) -> str:
    for ours, google in _PACKAGES.items():
        if type_name.startswith(f".{ours}."):
            return type_name.replace(ours, google, 1)
    return type_name
