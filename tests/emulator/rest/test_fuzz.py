"""Hostile requests over HTTP: each is refused clearly, without log entry and without effect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote

import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.rest.routes import ROUTES
from tests.emulator.broker import SUBSCRIPTION, TOPIC
from tests.emulator.hostile_json import HostileJson
from tests.emulator.rest_client import V1_PROJECT, RestClient
from tests.emulator.wire import PATIENCE

ROUNDS = 10

# Fields of some requests, and one that no request has.
FIELDS = (
    "name", "topic", "subscription", "snapshot", "schema", "labels", "pushConfig",
    "updateMask", "ackIds", "messages", "data", "attributes", "maxMessages",
    "returnImmediately", "ackDeadlineSeconds", "time", "messageRetentionDuration",
    "expirationPolicy", "ttl", "retryPolicy", "minimumBackoff", "deadLetterPolicy",
    "maxDeliveryAttempts", "policy", "bindings", "condition", "options", "permissions",
    "type", "definition", "encoding", "message", "messageTransforms", "aiInference",
    "unstructuredInference", "parameters", "nothing",
)  # fmt: skip

TEXTS = (
    "", "x", TOPIC, SUBSCRIPTION, "\0", "é" * 300, "-1s", "1e999s", "AAAA", "***", "\ud800",
    "0001-01-01T00:00:00Z", "9" * 400, "labels,", "a.b..c", "JSON",
)  # fmt: skip

PROJECTS = ("p", "%00", "é", "a.com:b", "..", "x" * 3000)

# Too short for the ID of a resource, or with characters that no ID has.
NAMES = ("1", "%2F", "%FF", "goog", "x" * 3000, "%ED%A0%80", "@@", "~")

QUERIES = (
    "", "?pageSize=-1", "?pageSize=" + "9" * 30, "?view=x", "?a=b", "?%ff=%ff", "?&&=&",
    "?updateMask=%00", "?labels=1", "?options.x=1", "?schemaId=%00", "?pageToken=%FF",
)  # fmt: skip


class Hostility(HostileJson):
    """Generates requests to /v1."""

    fields, texts = FIELDS, TEXTS

    def path(self, template: str) -> str:
        """Return a route's path with an invalid resource name, and perhaps a query."""
        project = self.random.choice(PROJECTS)
        name = self.random.choice(NAMES)
        _, _, pattern = template.partition("=")
        pattern, _, rest = pattern.partition("}")
        path = pattern.replace("*", quote(project, safe="%:."), 1).replace("*", name)
        query = self.random.choice(QUERIES)
        return f"/v1/{path}{rest}{query}"


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator(rest=True) as emulator:
        yield emulator


@pytest.mark.parametrize("seed", range(4))
def test_no_request_does_harm(
    emulator: Emulator, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The requests go to every route. Errors have Google's form, and no resource changes."""
    rest = RestClient(emulator.endpoint)
    rest.create()
    before = resources(rest)
    hostility = Hostility(seed)
    connection = HTTPConnection(emulator.endpoint, timeout=PATIENCE)
    for route in ROUTES * ROUNDS:
        path, body = hostility.path(route.template), hostility.body()
        connection.request(route.verb, path, body, {"X-Server-Timeout": "0"})
        answer = connection.getresponse()
        told = json.loads(answer.read())
        if answer.status != 200:
            assert told["error"]["code"] == answer.status
            assert answer.status in (400, 404, 501), (route, path, body, told)
            assert len(told["error"]["message"]) < 5000
    connection.close()
    assert resources(rest) == before
    assert caplog.records == []


def resources(rest: RestClient) -> list[Any]:
    collections = ("topics", "subscriptions", "snapshots", "schemas")
    return [rest.ok("GET", f"{V1_PROJECT}/{collection}") for collection in collections]
