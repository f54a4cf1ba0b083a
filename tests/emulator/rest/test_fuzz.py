"""Hostile requests over HTTP: each gets an error of its API's form, no effect, no log entry."""

from __future__ import annotations

import json
import random
import re
import socket
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote

import pytest
from google.protobuf import json_format
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from pullstream_emulator import Emulator
from pullstream_emulator.rest.routes import ROUTES, Route
from tests.emulator.broker import SUBSCRIPTION, TOPIC
from tests.emulator.hostile import NAMED, OWN_NAMES, SEARCH, requests
from tests.emulator.rest_client import V1_PROJECT, V1_TOPIC, RestClient
from tests.emulator.target import Target, under_attack
from tests.emulator.target import no_fault_of_ours as no_fault_of_ours
from tests.emulator.v0_client import TOPIC as V0_TOPIC
from tests.emulator.v0_client import V0
from tests.emulator.wire import TIMEOUT


class Hostility:
    """Generates hostile requests to an API. The same seed gives the same requests."""

    # The form of requests, and how often each is sent.
    endpoints: tuple[tuple[str, str], ...]
    rounds: int
    # The status codes of refusals.
    statuses: tuple[int, ...]
    # Names of object fields, one of them unknown, and string values.
    fields: tuple[str, ...]
    texts: tuple[str, ...]
    # Invalid names of resources.
    names: tuple[str, ...]
    queries: tuple[str, ...]
    headers: tuple[dict[str, str], ...]

    def __init__(self, seed: int, emulator: Emulator) -> None:
        self.random = random.Random(seed)
        self.rest = RestClient(emulator.endpoint)
        self.v0 = V0(emulator.endpoint)

    def prepare(self) -> None:
        """Create resources."""
        raise NotImplementedError

    def state(self) -> list[Any]:
        """Return the resources."""
        raise NotImplementedError

    def path(self, template: str) -> str:
        """Return a path with an invalid resource name, and perhaps a query."""
        raise NotImplementedError

    def value(self, depth: int = 4) -> Any:
        kinds = ["text", "number", "literal"] + ["list", "object"] * (depth > 0)
        match self.random.choice(kinds):
            case "text":
                return self.random.choice(self.texts)
            case "number":
                return self.random.choice([0, -1, 1.5, 1e300, 2**31, 2**63, 2**64, 10**400])
            case "literal":
                return self.random.choice([None, True, False])
            case "list":
                return [self.value(depth - 1) for _ in range(self.random.randrange(4))]
            case _:
                fields = self.random.sample(self.fields, self.random.randrange(6))
                return {field: self.value(depth - 1) for field in fields}

    def body(self) -> bytes:
        text = json.dumps(self.value()).encode()
        if self.random.random() < 0.2:
            return self.random.randbytes(self.random.randrange(50))
        if self.random.random() < 0.2:
            return text[: self.random.randrange(len(text) + 1)]
        return text


class V1Hostility(Hostility):
    endpoints = tuple((route.verb, route.template) for route in ROUTES)
    rounds = 10
    statuses = (400, 404, 501)
    fields = (
        "name", "topic", "subscription", "snapshot", "schema", "labels", "pushConfig",
        "updateMask", "ackIds", "messages", "data", "attributes", "maxMessages",
        "returnImmediately", "ackDeadlineSeconds", "time", "messageRetentionDuration",
        "expirationPolicy", "ttl", "retryPolicy", "minimumBackoff", "deadLetterPolicy",
        "maxDeliveryAttempts", "policy", "bindings", "condition", "options", "permissions",
        "type", "definition", "encoding", "message", "messageTransforms", "aiInference",
        "unstructuredInference", "parameters", "nothing",
    )  # fmt: skip
    texts = (
        "", "x", TOPIC, SUBSCRIPTION, "\0", "é" * 300, "-1s", "1e999s", "AAAA", "***", "\ud800",
        "0001-01-01T00:00:00Z", "9" * 400, "labels,", "a.b..c", "JSON",
    )  # fmt: skip
    projects = ("p", "%00", "é", "a.com:b", "..", "x" * 3000)
    # Too short for the ID of a resource, or with characters that no ID has.
    names = ("1", "%2F", "%FF", "goog", "x" * 3000, "%ED%A0%80", "@@", "~")
    queries = (
        "", "?pageSize=-1", "?pageSize=" + "9" * 30, "?view=x", "?a=b", "?%ff=%ff", "?&&=&",
        "?updateMask=%00", "?labels=1", "?options.x=1", "?schemaId=%00", "?pageToken=%FF",
    )  # fmt: skip
    headers = ({"X-Server-Timeout": "0"},)

    def prepare(self) -> None:
        self.rest.create()

    def state(self) -> list[Any]:
        collections = ("topics", "subscriptions", "snapshots", "schemas")
        return [self.rest.ok("GET", f"{V1_PROJECT}/{collection}") for collection in collections]

    def path(self, template: str) -> str:
        project = self.random.choice(self.projects)
        name = self.random.choice(self.names)
        _, _, pattern = template.partition("=")
        pattern, _, rest = pattern.partition("}")
        path = pattern.replace("*", quote(project, safe="%:."), 1).replace("*", name)
        return f"/v1/{path}{rest}{self.random.choice(self.queries)}"


class V0Hostility(Hostility):
    endpoints = (
        ("PUT", "topics/{}"), ("GET", "topics/{}"), ("DELETE", "topics/{}"), ("POST", "topics/{}"),
        ("POST", "topics/{}/diff"), ("POST", "topics/{}/delete"), ("GET", "topics"),
        ("PUT", "routers/{}"), ("GET", "routers/{}"), ("DELETE", "routers/{}"), ("GET", "routers"),
        ("POST", "watch"), ("GET", "watch/{}"), ("DELETE", "watch/{}"), ("POST", "{}"),
        ("PATCH", "{}"), ("GET", "topics/{}/{}"),
    )  # fmt: skip
    rounds = 25
    statuses = (400, 404, 405, 406)
    fields = (
        "records", "data", "tag", "node", "key", "meta", "idempotency_key", "create", "ttl_ms",
        "cap_records", "cap_bytes", "discard", "durable", "durability", "auto_create",
        "idempotency_window_ms", "dedupe_node", "from_seq", "tail", "epoch", "filter", "limit",
        "max_batch_bytes", "wait_ms", "include_data", "include_tags", "include_meta", "before_seq",
        "match", "source", "dest", "preserve_node", "preserve_tag", "create_dest", "allow_cycle",
        "topics", "heartbeat_ms", "orders", "nothing",
    )  # fmt: skip
    texts = (
        "", "x", "orders", "\0", "é" * 300, "***", "\ud800", "9" * 400, "old", "wid_x",
        "tag", "Glob",
    )  # fmt: skip
    names = ("1", "%00", "%2F", "%0A", "%FF", "goog", "x" * 3000, "%ED%A0%80", "@@", "..", "%", "~")
    queries = (
        "", "?page_size=-1", "?page_size=" + "9" * 30, "?cursor=x", "?cursor=%FF", "?project=",
        "?project=%00", "?project=a%2Fb", "?source=%FF", "?a=b", "?%ff=%ff", "?&&=&",
        "?project=%C3%A9",
    )  # fmt: skip
    headers = (
        {}, {"Last-Event-ID": "\xff"}, {"Last-Event-ID": "e30"}, {"Accept": ";q=,"},
        {"Idempotency-Key": "\xff"}, {"Content-Type": "\xff"}, {"Content-Type": "text/plain; a=b"},
    )  # fmt: skip

    def prepare(self) -> None:
        self.v0.append("a", tag="t")
        self.v0.ok("PUT", "/v0/routers/copies", {"source": "orders", "dest": "orders:copies"})

    def state(self) -> list[Any]:
        paths = (V0_TOPIC, "/v0/topics", "/v0/routers")
        return [self.v0.diff(), *(self.v0.ok("GET", path) for path in paths)]

    def path(self, template: str) -> str:
        path = template.format(*self.random.choices(self.names, k=2))
        return f"/v0/{path}{self.random.choice(self.queries)}"


@pytest.mark.parametrize(
    ("api", "seed"),
    [*((V1Hostility, seed) for seed in range(4)), *((V0Hostility, seed) for seed in range(3))],
)
def test_random_http_requests_are_answered_with_errors_and_change_no_resource(
    emulator: Emulator, api: type[Hostility], seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The requests go to every endpoint. Errors have the API's form, and no resource changes."""
    hostility = api(seed, emulator)
    hostility.prepare()
    before = hostility.state()
    with closing(HTTPConnection(emulator.endpoint, timeout=TIMEOUT)) as connection:
        for verb, template in hostility.endpoints * hostility.rounds:
            path, body = hostility.path(template), hostility.body()
            connection.request(verb, path, body, hostility.random.choice(hostility.headers))
            answer = connection.getresponse()
            content = json.loads(answer.read())
            if answer.status != 200:
                assert answer.status in hostility.statuses, (verb, path, body, content)
                assert set(content) == {"error"}
                assert api is V0Hostility or content["error"]["code"] == answer.status
                assert len(content["error"]["message"]) < 5000
    assert hostility.state() == before
    assert caplog.records == []


def test_non_ascii_bytes_in_an_http_request_line_are_refused(emulator: Emulator) -> None:
    """HTTP allows no such bytes in a path or a query."""
    for target in (b"/v0/topics/\xff\xfe", b"/v0/topics?cursor=\xff", b"/v0/topics/caf\xe9/diff"):
        with socket.create_connection(("127.0.0.1", emulator.port), TIMEOUT) as connection:
            connection.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(65536).startswith(
                (b"HTTP/1.1 400", b"HTTP/1.0 400", b"HTTP/1.1 405")
            )


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
def test_hostile_rest_requests_are_refused_and_change_no_resource(
    target: Target, route: Route
) -> None:
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
def test_pathological_json_bodies_are_refused_with_a_short_error(
    target: Target, verb: str, body: bytes
) -> None:
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
def test_requests_with_malformed_rest_paths_are_refused(target: Target, path: str) -> None:
    """No path leads out of the API."""
    attack(target, "GET", path, b"")
    status, _, _ = RestClient(target.emulator.endpoint).raw("GET", path)
    assert status in REFUSALS
