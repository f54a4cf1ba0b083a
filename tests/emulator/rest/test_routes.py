"""Routes: the RPC for each verb and path."""

from __future__ import annotations

import pytest

from pullstream_emulator.rest.routes import ROUTES, find
from pullstream_protocol.rpcs import RPCS


def test_every_google_rpc_except_streaming_pull_has_a_rest_route() -> None:
    """The three IAM calls have a route for each kind of resource."""
    google = [rpc for rpc in RPCS if rpc.service.startswith("google.")]
    counts = {rpc.method: sum(r.method == rpc.method for r in ROUTES) for rpc in google}
    iam = dict.fromkeys(("SetIamPolicy", "GetIamPolicy", "TestIamPermissions"), 4)
    assert counts == {**dict.fromkeys(counts, 1), "StreamingPull": 0, **iam}


@pytest.mark.parametrize(
    ("verb", "path", "method", "name"),
    [
        ("PUT", "projects/p/topics/t", "CreateTopic", "projects/p/topics/t"),
        ("POST", "projects/p/topics/t:publish", "Publish", "projects/p/topics/t"),
        ("GET", "projects/p/topics", "ListTopics", "projects/p"),
        ("GET", "projects/p/topics/t/snapshots", "ListTopicSnapshots", "projects/p/topics/t"),
        ("GET", "projects/p/schemas/s@1a2b3c4d", "GetSchema", "projects/p/schemas/s@1a2b3c4d"),
        ("POST", "projects/p/schemas:validate", "ValidateSchema", "projects/p"),
        ("GET", "projects/p/snapshots/s:getIamPolicy", "GetIamPolicy", "projects/p/snapshots/s"),
        # Names of projects in a domain contain a colon.
        ("GET", "projects/a.com:p/topics/t", "GetTopic", "projects/a.com:p/topics/t"),
        ("GET", "projects/a.com:p/topics", "ListTopics", "projects/a.com:p"),
        # Names may contain a percent sign, which is encoded in a path.
        ("GET", "projects/p/topics/50%25", "GetTopic", "projects/p/topics/50%"),
        ("GET", "projects/p/topics/a%2525", "GetTopic", "projects/p/topics/a%25"),
        ("GET", "projects/p/topics/a+b~c", "GetTopic", "projects/p/topics/a+b~c"),
    ],
)
def test_a_rest_verb_and_path_are_mapped_to_an_rpc_and_a_resource_name(
    verb: str, path: str, method: str, name: str
) -> None:
    """The name is decoded once."""
    found = find(verb, f"/v1/{path}")
    assert found is not None
    assert (found[0].method, found[1]) == (method, name)


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("POST", "/v1/projects/p/topics/t"),
        ("GET", "/v1/projects/p/topics/t:publish"),
        ("POST", "/v1/projects/p/topics/t:unknown"),
        ("GET", "/v1/projects/p"),
        ("GET", "/v1/projects//topics/t"),
        ("GET", "/v1/projects/p/topics/"),
        ("GET", "/v2/projects/p/topics/t"),
        ("GET", "/projects/p/topics/t"),
        ("GET", "/v1/projects/p/topics/t/"),
        ("get", "/v1/projects/p/topics/t"),
    ],
)
def test_unknown_combinations_of_rest_verb_and_path_are_mapped_to_no_rpc(
    verb: str, path: str
) -> None:
    """Examples are another verb, another path, and a segment too few or too many."""
    assert find(verb, path) is None
