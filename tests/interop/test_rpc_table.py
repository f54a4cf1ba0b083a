"""The table of RPCs is Google's: the same services, methods, kinds and messages, none missing."""

from typing import Any

import grpc
import pytest
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.schema_service.transports import SchemaServiceGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from pullstream_protocol.rpcs import RPCS, Kind

TRANSPORTS = (PublisherGrpcTransport, SubscriberGrpcTransport, SchemaServiceGrpcTransport)
OURS = {rpc.path: rpc for rpc in RPCS}
# The class that protobuf's own serializers name. Proto-plus's serializers name the message.
ANY_MESSAGE = "Message"


class RecordingChannel(grpc.Channel):
    """A channel without a server that records the methods made on it."""

    def __init__(self) -> None:
        self.made: set[tuple[str, Kind, str, str]] = set()

    def unary_unary(self, method: str, *functions: Any, **named: Any) -> Any:
        return self._make(Kind.UNARY, method, *functions, **named)

    def stream_stream(self, method: str, *functions: Any, **named: Any) -> Any:
        return self._make(Kind.BIDI, method, *functions, **named)

    def unary_stream(self, *args: Any, **named: Any) -> Any:
        raise AssertionError("there are no such methods")

    stream_unary = unary_stream

    def _make(
        self,
        kind: Kind,
        path: str,
        request_serializer: Any,
        response_deserializer: Any,
        *rest: Any,
    ) -> Any:
        names = message_name(request_serializer), message_name(response_deserializer)
        self.made.add((path, kind, *names))
        return lambda *args, **named: None

    def subscribe(self, callback: Any, try_to_connect: bool | None = False) -> None:
        """Do nothing, as there is no connection."""

    def unsubscribe(self, callback: Any) -> None:
        """Do nothing, see `subscribe`."""

    def close(self) -> None:
        """Do nothing, as there is nothing to close."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def message_name(function: Any) -> str:
    """Return the message of a (de)serializer of proto-plus or protobuf."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, type):
        return owner.__name__
    return str(function.__objclass__.__name__ if owner is None else owner.__name__)


@pytest.mark.parametrize("transport_type", TRANSPORTS)
def test_the_table_of_rpcs_has_the_paths_and_types_of_googles_client_stubs(
    transport_type: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Path, kind, request and response of each method of Google's own stubs agree."""
    # Interceptors make their stubs only when these are called.
    monkeypatch.setattr(grpc, "intercept_channel", lambda channel, *interceptors: channel)
    channel = RecordingChannel()
    transport = transport_type(channel=channel)
    for name in dir(transport_type):
        if isinstance(getattr(transport_type, name), property):
            getattr(transport, name)
    services = {path.split("/")[1] for path, *_ in channel.made}
    assert {path for path, *_ in channel.made} == {
        rpc.path for rpc in RPCS if rpc.service in services
    }
    for path, kind, request, response in channel.made:
        ours = OURS[path]
        assert (kind, response) == (ours.kind, ours.response.DESCRIPTOR.name)
        assert request in (ours.request.DESCRIPTOR.name, ANY_MESSAGE)
        assert request != ANY_MESSAGE or "iam" in path
