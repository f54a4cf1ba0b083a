"""A low-level client of /v0."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.emulator.event_reader import EventReader
from tests.emulator.rest_client import RestClient

TOPIC = "/v0/topics/orders"


class V0:
    """A client that checks the form of every answer."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.rest = RestClient(endpoint)

    def ok(self, verb: str, path: str, content: Any = None, **headers: str) -> Any:
        """Return the answer of a call that must succeed, without `performance`."""
        status, told = self.rest.call(verb, path, content, **headers)
        assert status == (201 if told.get("created") else 200), told
        performance = told.pop("performance")
        assert performance["server_total_ms"] >= 0
        return told

    def refused(self, verb: str, path: str, content: Any = None, **headers: str) -> tuple[int, str]:
        """Return status and code of a refusal."""
        status, told = self.rest.call(verb, path, content, **headers)
        assert set(told) == {"error"}
        assert told["error"]["message"]
        return status, told["error"]["code"]

    def message(self, verb: str, path: str, content: Any = None) -> str:
        """Return the text of a refusal with status 400."""
        status, told = self.rest.call(verb, path, content)
        assert (status, told["error"]["code"]) == (400, "invalid_request")
        text: str = told["error"]["message"]
        return text

    def append(self, *data: Any, topic: str = TOPIC, **fields: Any) -> Any:
        """Append records with these data. Each record also has `fields`."""
        return self.ok("POST", topic, {"records": [{"data": d, **fields} for d in data]})

    def diff(self, topic: str = TOPIC, **fields: Any) -> Any:
        return self.ok("POST", f"{topic}/diff", fields)

    def data(self, topic: str = TOPIC, **fields: Any) -> list[Any]:
        """Return the data of the records of a diff."""
        return [record["data"] for record in self.diff(topic, **fields)["records"]]

    def watch(self, **fields: Any) -> str:
        """Create a session for the topic of all tests, and return the path of its stream."""
        path: str = self.ok("POST", "/v0/watch", {"topics": {"orders": {}}, **fields})["stream_url"]
        return path

    @contextmanager
    def stream(self, path: str, **headers: str) -> Iterator[EventReader]:
        """Yield an open stream."""
        reader = EventReader(self.endpoint, path, **headers)
        try:
            yield reader
        finally:
            reader.close()
