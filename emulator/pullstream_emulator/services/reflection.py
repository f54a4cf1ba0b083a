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

# The service has the same messages and field numbers in both versions. grpcio knows the older one,
# newer tools ask for the newer one.
_V1ALPHA, _V1 = "grpc.reflection.v1alpha", "grpc.reflection.v1"
SERVICES = tuple(f"{package}.ServerReflection" for package in (_V1, _V1ALPHA))
_METHODS = frozenset(f"/{service}/ServerReflectionInfo" for service in SERVICES)

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
        """Return the handler of both versions of the service; None for all other methods."""
        if handler_call_details.method not in _METHODS:
            return None
        try:
            from grpc_reflection.v1alpha import reflection, reflection_pb2
        except ImportError:
            return None
        if self._servicer is None:
            services = sorted({rpc.service for rpc in RPCS} | {*SERVICES})
            pool = described(RPCS)
            own = _file_proto(reflection_pb2.DESCRIPTOR)
            pool.Add(own)
            pool.Add(_as_v1(own))
            self._servicer = reflection.aio.ReflectionServicer(services, _MethodsFound(pool))
        return grpc.stream_stream_rpc_method_handler(
            self._answer,
            reflection_pb2.ServerReflectionRequest.FromString,
            reflection_pb2.ServerReflectionResponse.SerializeToString,
        )

    async def _answer(self, requests: Any, context: Any) -> None:
        # grpcio's method is an asynchronous generator. Interceptors expect a coroutine.
        async for response in self._servicer.ServerReflectionInfo(requests, context):
            await context.write(response)


class _MethodsFound:
    """A descriptor pool that also finds the file of a method, as the protocol requires."""

    def __init__(self, pool: DescriptorPool) -> None:
        self._pool = pool

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def FindFileContainingSymbol(self, symbol: str) -> Any:  # noqa: N802
        """Return the file of a message, field, enum, service or method; raise KeyError."""
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            service_name, _, method = symbol.rpartition(".")
            service = self._pool.FindServiceByName(service_name)
            if method not in service.methods_by_name:
                raise
            return service.file


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


def _as_v1(v1alpha: descriptor_pb2.FileDescriptorProto) -> descriptor_pb2.FileDescriptorProto:
    """Return the description of the reflection service in its newer package."""
    v1 = descriptor_pb2.FileDescriptorProto()
    v1.CopyFrom(v1alpha)
    v1.name, v1.package = "grpc/reflection/v1/reflection.proto", _V1
    for message in v1.message_type:
        for field in message.field:
            if field.type_name:
                field.type_name = field.type_name.replace(_V1ALPHA, _V1)
    for service in v1.service:
        for method in service.method:
            method.input_type = method.input_type.replace(_V1ALPHA, _V1)
            method.output_type = method.output_type.replace(_V1ALPHA, _V1)
    return v1


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
