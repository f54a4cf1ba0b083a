"""Hostile requests over HTTP: each gets an error of Google's form, no effect, no log entry.

PULLSTREAM_FUZZ_EXAMPLES=10000 searches longer than the normal suite, with other examples each time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from pullstream_emulator.rest.routes import ROUTES, Route
from tests.emulator.hostile import NAMED, OWN_NAMES, SEARCH, requests
from tests.emulator.rest_client import V1_TOPIC, RestClient
from tests.emulator.target import Target, under_attack
from tests.emulator.target import no_fault_of_ours as no_fault_of_ours

# Allowed status codes of refusals: client errors that clients do not retry.
REFUSALS = {400, 404, 409, 413}

# JSON that often causes errors in parsers.
STUMBLING_BLOCKS = {
    "nothing that ends": b"[" * 100_000,
    "objects without end": b'{"labels":' * 100_000,
    "a number without end": b'{"ackDeadlineSeconds": ' + b"9" * 100_000 + b"}",
    "infinity": b'{"ackDeadlineSeconds": 1e999}',
    "no number": b'{"ackDeadlineSeconds": NaN}',
    "half a character": b'{"labels": {"a": "\\ud800"}}',
    "no UTF-8": b'{"labels": {"a": "\xff"}}',
    "a list": b"[]",
    "a name twice": b'{"topic": "a", "topic": 1}',
    "bytes": bytes(range(256)),
}


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with under_attack(rest=True) as target:
        yield target


def attack(target: Target, verb: str, path: str, body: bytes) -> None:
    """Send a request.

    If it is refused, check that the status is allowed and the state unchanged.
    """
    target.prepare()
    before = target.state()
    status, _, text = RestClient(target.emulator.endpoint).raw(verb, path, body or None)
    if status == 200:
        return
    assert status in REFUSALS, text
    error = json.loads(text)["error"]
    assert error["code"] == status
    assert 0 < len(error["message"]) < 1000
    assert target.state() == before


def path_of(route: Route) -> str:
    """Return the route's path with the names of existing resources."""
    field = route.name_field.rpartition(".")[2]
    named = NAMED.get(field) or next(
        name for kind, name in OWN_NAMES.items() if kind.lower() + "s/" in route.template
    )
    return "/v1/" + re.sub(r"\{[^}]+\}", named, route.template)


def as_json(request: Message) -> bytes:
    """Return the JSON of a message, without invalid durations and times, which have none."""
    try:
        return json_format.MessageToJson(request).encode()
    except (ValueError, json_format.Error):
        return b'{"time": "never"}'


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.method)
def test_hostile_requests_are_refused_without_effect(target: Target, route: Route) -> None:
    """Requests without an error are carried out."""
    anything: st.SearchStrategy[Any] = st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda kids: st.lists(kids, max_size=3)
    )
    bodies = (
        requests(route.rpc.request).map(as_json)
        | st.dictionaries(st.sampled_from(field_names(route)), anything, max_size=3).map(
            lambda content: json.dumps(content).encode()
        )
        | st.binary(max_size=50)
    )

    @SEARCH
    @given(bodies)
    def check(body: bytes) -> None:
        attack(target, route.verb, path_of(route), body)

    check()


def field_names(route: Route) -> list[str]:
    return ["nonsense", *(field.json_name for field in route.rpc.request.DESCRIPTOR.fields)]


@pytest.mark.parametrize("body", STUMBLING_BLOCKS.values(), ids=STUMBLING_BLOCKS)
@pytest.mark.parametrize("verb", ["PUT", "PATCH"])
def test_json_that_cannot_be_is_refused(target: Target, verb: str, body: bytes) -> None:
    """The refusal comes before any field is examined."""
    target.prepare()
    status, _, text = RestClient(target.emulator.endpoint).raw(verb, f"{V1_TOPIC}-2", body)
    assert status == 400, text
    assert len(json.loads(text)["error"]["message"]) < 1000


@pytest.mark.parametrize(
    "path",
    [
        "/v1/projects/test/topics/%00",
        "/v1/projects/test/topics/%ff",
        "/v1/projects/test/topics/..%2f..%2fetc%2fpasswd",
        "/v1/projects/test/topics/../../../etc/passwd",
        "/v1/" + "a/" * 1000,
        "/v1/projects/test/topics/" + "x" * 5000,
        "/v1/projects/test/topics?pageSize=-1",
        "/v1/projects/test/topics?pageSize=99999999999999999999",
        "/v1/projects/test/topics?pageToken=%ff",
        "/v1/projects/test/topics?nonsense=1",
        "/v1/projects/test/topics/orders:nonsense",
    ],
)
def test_paths_that_lead_nowhere_are_refused(target: Target, path: str) -> None:
    """No path leads out of the API."""
    attack(target, "GET", path, b"")
    status, _, _ = RestClient(target.emulator.endpoint).raw("GET", path)
    assert status in REFUSALS
