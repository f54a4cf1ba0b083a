"""Our messages and Google's client work in one process, in either order of import."""

import importlib
import subprocess
import sys

import pytest

from pullstream_protocol.messages import generate
from tests.completed import run_command
from tests.subscriber.program import STRICT

OURS = """
from pullstream_protocol.messages import encoded_pb2, iam_pb2, pubsub_pb2, schema_pb2
"""
GOOGLES = """
from google.cloud import pubsub_v1
"""
USE_BOTH = """
ours = pubsub_pb2.PubsubMessage(data=b"x", attributes={"a": "b"})
googles = pubsub_v1.types.PubsubMessage(data=b"x", attributes={"a": "b"})
assert pubsub_v1.types.PubsubMessage.serialize(googles) == ours.SerializeToString()
assert encoded_pb2.EncodedReceivedMessage(message=ours.SerializeToString()).message
assert iam_pb2.Policy(version=3).version == 3
assert schema_pb2.Schema(type=schema_pb2.Schema.AVRO).type == 2
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a new Python process where every warning is an error."""
    command = [sys.executable, *STRICT, "-c", program]
    return run_command(command, cwd=generate.ROOT)


@pytest.mark.parametrize(
    "imports", [GOOGLES + OURS, OURS + GOOGLES], ids=["google first", "ours first"]
)
def test_protobuf_modules_of_google_and_pullstream_can_be_imported_in_either_order(
    imports: str,
) -> None:
    """Neither import order clashes in protobuf's pool of descriptors or warns."""
    result = run(imports + USE_BOTH)
    assert result.returncode == 0, result.stderr


def test_the_protobuf_modules_of_pullstream_are_imported_without_a_warning() -> None:
    """The generated modules are older than the installed protobuf and cause no warning."""
    result = run(OURS)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("official", "ours"),
    [
        ("google.cloud.pubsub", "pullstream"),
        ("google.pubsub_v1.types", "pullstream.types"),
        ("google.cloud.pubsub_v1.publisher", "pullstream.publisher"),
        ("google.cloud.pubsub_v1.publisher.exceptions", "pullstream.publisher.exceptions"),
        ("google.cloud.pubsub_v1.subscriber", "pullstream.subscriber"),
        ("google.cloud.pubsub_v1.subscriber.exceptions", "pullstream.subscriber.exceptions"),
    ],
)
def test_each_protobuf_module_of_pullstream_has_all_names_of_googles_module(
    official: str, ours: str
) -> None:
    """The names include the messages of schemas, which `pubsub_v1.types` lacks."""
    names = set(importlib.import_module(official).__all__)
    # A type alias of the generated clients.
    names -= {"TimeoutType"}
    module = importlib.import_module(ours)
    assert sorted(name for name in names if not hasattr(module, name)) == []
