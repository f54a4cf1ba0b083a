"""Hostile requests to /v0: each is refused clearly, without log entry and without effect."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import pytest

from pullstream_emulator import Emulator
from tests.emulator.hostile_json import HostileJson
from tests.emulator.v0_client import TOPIC, V0
from tests.emulator.wire import PATIENCE

ROUNDS = 25

# Fields of some requests, and one that no request has.
FIELDS = (
    "records", "data", "tag", "node", "key", "meta", "idempotency_key", "create", "ttl_ms",
    "cap_records", "cap_bytes", "discard", "durable", "durability", "auto_create",
    "idempotency_window_ms", "dedupe_node", "from_seq", "tail", "epoch", "filter", "limit",
    "max_batch_bytes", "wait_ms", "include_data", "include_tags", "include_meta", "before_seq",
    "match", "source", "dest", "preserve_node", "preserve_tag", "create_dest", "allow_cycle",
    "topics", "heartbeat_ms", "orders", "nothing",
)  # fmt: skip

TEXTS = (
    "",
    "x",
    "orders",
    "\0",
    "é" * 300,
    "***",
    "\ud800",
    "9" * 400,
    "old",
    "wid_x",
    "tag",
    "Glob",
)

# Invalid names of resources.
NAMES = ("1", "%00", "%2F", "%0A", "%FF", "goog", "x" * 3000, "%ED%A0%80", "@@", "..", "%", "~")

ENDPOINTS = (
    ("PUT", "topics/{}"), ("GET", "topics/{}"), ("DELETE", "topics/{}"), ("POST", "topics/{}"),
    ("POST", "topics/{}/diff"), ("POST", "topics/{}/delete"), ("GET", "topics"),
    ("PUT", "routers/{}"), ("GET", "routers/{}"), ("DELETE", "routers/{}"), ("GET", "routers"),
    ("POST", "watch"), ("GET", "watch/{}"), ("DELETE", "watch/{}"), ("POST", "{}"), ("PATCH", "{}"),
    ("GET", "topics/{}/{}"),
)  # fmt: skip

QUERIES = (
    "", "?page_size=-1", "?page_size=" + "9" * 30, "?cursor=x", "?cursor=%FF", "?project=",
    "?project=%00", "?project=a%2Fb", "?source=%FF", "?a=b", "?%ff=%ff", "?&&=&", "?project=%C3%A9",
)  # fmt: skip

HEADERS: tuple[dict[str, str], ...] = (
    {}, {"Last-Event-ID": "\xff"}, {"Last-Event-ID": "e30"}, {"Accept": ";q=,"},
    {"Idempotency-Key": "\xff"}, {"Content-Type": "\xff"}, {"Content-Type": "text/plain; a=b"},
)  # fmt: skip


class Hostility(HostileJson):
    """Generates requests to /v0."""

    fields, texts = FIELDS, TEXTS

    def path(self, template: str) -> str:
        path = template.format(*self.random.choices(NAMES, k=2))
        return f"/v0/{path}{self.random.choice(QUERIES)}"

    def headers(self) -> dict[str, str]:
        return self.random.choice(HEADERS)


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with Emulator(rest=True) as emulator:
        yield emulator


@pytest.mark.parametrize("seed", range(3))
def test_no_request_does_harm(
    emulator: Emulator, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The requests go to every endpoint. Errors have the form of /v0, and no resource changes."""
    emulator.reset()
    v0 = V0(emulator.endpoint)
    v0.append("a", tag="t")
    v0.ok("PUT", "/v0/routers/copies", {"source": "orders", "dest": "orders:copies"})
    before = state(v0)
    hostility = Hostility(seed)
    with closing(HTTPConnection(emulator.endpoint, timeout=PATIENCE)) as connection:
        for verb, template in ENDPOINTS * ROUNDS:
            path, body = hostility.path(template), hostility.body()
            connection.request(verb, path, body, hostility.headers())
            answer = connection.getresponse()
            told = json.loads(answer.read())
            if answer.status != 200:
                assert answer.status in (400, 404, 405, 406), (verb, path, body, told)
                assert set(told) == {"error"}
                assert len(told["error"]["message"]) < 5000
    assert state(v0) == before
    assert caplog.records == []


def state(v0: V0) -> list[Any]:
    return [v0.ok("GET", TOPIC), v0.diff(), v0.ok("GET", "/v0/topics"), v0.ok("GET", "/v0/routers")]


def test_bytes_of_no_character_set_are_refused(emulator: Emulator) -> None:
    """HTTP allows no such bytes in a path or a query."""
    for target in (b"/v0/topics/\xff\xfe", b"/v0/topics?cursor=\xff", b"/v0/topics/caf\xe9/diff"):
        with socket.create_connection(("127.0.0.1", emulator.port), PATIENCE) as connection:
            connection.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(65536).startswith(
                (b"HTTP/1.1 400", b"HTTP/1.0 400", b"HTTP/1.1 405")
            )
