"""The projects to which a request belongs are read from the names in it."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import Message

from pullstream_emulator.access.request_projects import RESOURCE_FIELDS, projects_of
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.messages import schema_pb2 as schema
from pullstream_protocol.rpcs import RPCS


@pytest.mark.parametrize("rpc", RPCS, ids=lambda rpc: rpc.method)
def test_the_function_projects_of_finds_the_project_in_every_type_of_grpc_request(rpc: Any) -> None:
    """Each field with a resource name counts, including those of RPCs that are added later."""
    for path in RESOURCE_FIELDS[rpc.request.DESCRIPTOR.name]:
        request = rpc.request()
        name_resource(request, path, "projects/p1/things/x")
        assert projects_of(request) == ["p1"]


def name_resource(request: Any, path: str, name: str) -> None:
    """Set a field to a name.

    In a list set the first item; in a map set the key, if there is one.
    """
    *parents, field = path.split(".")
    for parent in parents:
        value = getattr(request, parent)
        request = value if isinstance(value, Message) else value.add()
    if isinstance(getattr(request, field), str):
        setattr(request, field, name)
    else:
        getattr(request, field)[name].SetInParent()


def test_the_function_projects_of_includes_the_projects_of_topic_and_dead_letter_topic() -> None:
    """The projects are the projects of the subscription, its topic, and its dead-letter topic."""
    request = pubsub.Subscription(name="projects/a/subscriptions/s", topic="projects/b/topics/t")
    request.dead_letter_policy.dead_letter_topic = "projects/c/topics/t"
    assert projects_of(request) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("name", "projects"),
    [
        ("projects/p", ["p"]),
        ("projects/p/schemas/s@abc", ["p"]),
        ("projects//schemas/s", [""]),
        ("", []),
        ("schemas/s", []),
        ("x/projects/p", []),
        ("projects", []),
    ],
)
def test_the_function_projects_of_finds_no_project_in_a_text_that_is_no_resource_name(
    name: str, projects: list[str]
) -> None:
    """A text that is no resource name has no project."""
    assert projects_of(schema.GetSchemaRequest(name=name)) == projects
