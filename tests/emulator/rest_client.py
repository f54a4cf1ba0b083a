"""A low-level HTTP client: one request per connection."""

from __future__ import annotations

import json
import ssl
from contextlib import closing
from http.client import HTTPConnection, HTTPSConnection
from typing import Any, NamedTuple

from pullstream_emulator import Emulator
from tests.emulator.broker import PROJECT, SUBSCRIPTION, TOPIC
from tests.emulator.wire import TIMEOUT
from tests.subscriber.streaming.fakes import eventually

V1_PROJECT = f"/v1/{PROJECT}"
V1_TOPIC = f"/v1/{TOPIC}"
V1_SUBSCRIPTION = f"/v1/{SUBSCRIPTION}"


class Reply(NamedTuple):
    status: int
    content: Any

    @property
    def error(self) -> tuple[int, str, str]:
        """Return HTTP status, name and text of an error, and check that it has Google's form."""
        (name,) = self.content
        assert name == "error"
        told = self.content["error"]
        assert told["code"] == self.status
        return self.status, told["status"], told["message"]


class RestClient:
    """A client of one broker."""

    def __init__(self, endpoint: str, tls: ssl.SSLContext | None = None) -> None:
        self._endpoint = endpoint
        self._tls = tls

    def connect(self) -> HTTPConnection:
        if self._tls is None:
            return HTTPConnection(self._endpoint, timeout=TIMEOUT)
        return HTTPSConnection(self._endpoint, timeout=TIMEOUT, context=self._tls)

    def raw(
        self, verb: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, str, str]:
        """Return status, content type and text of the answer."""
        with closing(self.connect()) as connection:
            connection.request(verb, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers["Content-Type"], answer.read().decode()

    def call(self, verb: str, path: str, content: Any = None, **headers: str) -> Reply:
        """Send `content` as JSON and return the parsed answer."""
        body = None if content is None else json.dumps(content).encode()
        status, kind, text = self.raw(verb, path, body, **headers)
        assert kind == "application/json; charset=UTF-8"
        return Reply(status, json.loads(text))

    def ok(self, verb: str, path: str, content: Any = None) -> Any:
        """Return the answer of a call that must succeed."""
        reply = self.call(verb, path, content)
        assert reply.status == 200, reply
        return reply.content

    def create(self, **subscription: Any) -> None:
        """Create the topic and the subscription that all tests use."""
        self.ok("PUT", V1_TOPIC)
        self.ok("PUT", V1_SUBSCRIPTION, {"topic": TOPIC, **subscription})


def wait_for_pulls(emulator: Emulator, count: int) -> None:
    """Wait until this many pulls wait. The broker notices a request or its end a moment later."""
    eventually(lambda: emulator.inspect(lambda engine: engine.waiting_pulls(SUBSCRIPTION)) == count)


def wait_until_no_stream(emulator: Emulator) -> None:
    """Wait until the broker knows that the subscription has no stream any more."""
    subscription = emulator.engine.registry.subscription(SUBSCRIPTION)
    while emulator.inspect(lambda _: subscription.consumers.streams):
        pass
