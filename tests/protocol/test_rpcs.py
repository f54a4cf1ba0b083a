"""The table of RPCs is complete, and each of its names is unique.

tests/interop compares its services, methods and kinds with Google's.
"""

from google.protobuf.empty_pb2 import Empty

from pullstream_protocol.messages import (
    channels_pb2,
    feeds_pb2,
    iam_pb2,
    pubsub_pb2,
    pulls_pb2,
    schema_pb2,
)
from pullstream_protocol.rpcs import BY_METHOD, RPCS, Kind

MODULES = (pubsub_pb2, schema_pb2, iam_pb2, pulls_pb2, feeds_pb2, channels_pb2)
FILES = tuple(module.DESCRIPTOR for module in MODULES)


def test_each_path_and_method_name_in_the_table_of_rpcs_is_unique() -> None:
    """A method is looked up by its name alone."""
    assert len({rpc.path for rpc in RPCS}) == len(RPCS)
    assert {rpc.method: rpc for rpc in RPCS} == BY_METHOD
    assert len(BY_METHOD) == len(RPCS)


def test_the_path_of_an_rpc_consists_of_service_and_method() -> None:
    """The header of a gRPC call has it in this form."""
    assert BY_METHOD["Pull"].path == "/google.pubsub.v1.Subscriber/Pull"
    assert BY_METHOD["GetIamPolicy"].path == "/google.iam.v1.IAMPolicy/GetIamPolicy"


def test_streaming_pull_is_the_only_bidirectional_streaming_rpc() -> None:
    """Every other call has one request and one response."""
    assert [rpc.method for rpc in RPCS if rpc.kind is Kind.BIDI] == ["StreamingPull"]


def test_every_request_and_response_message_is_used_by_an_rpc() -> None:
    """An unused message would mean that an RPC was forgotten."""
    used = {message.DESCRIPTOR.full_name for rpc in RPCS for message in (rpc.request, rpc.response)}
    defined = {name.full_name for file in FILES for name in file.message_types_by_name.values()}
    assert {name for name in defined if name.endswith(("Request", "Response"))} <= used
    assert used - defined == {Empty.DESCRIPTOR.full_name}


def test_an_rpc_is_marked_as_reading_only_if_its_name_begins_with_a_reading_verb() -> None:
    """An RPC reads if it gets, lists, tests or validates, or is `Read` or `Watch`."""
    reading = ("Get", "List", "Read", "Test", "Validate", "Watch")
    assert all(rpc.reads is rpc.method.startswith(reading) for rpc in RPCS)
