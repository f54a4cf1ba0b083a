"""A client of /v0 that speaks HTTP as curl and browsers do."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote, urlencode

from tests.contract.face import TIMEOUT, Event, FaceError, Json
from tests.emulator.event_reader import EventReader, Refused

# The HTTP status for each error that ends a stream.
_STATUS = {"conflict": 409, "not_found": 404, "unavailable": 503}

_START = ("from_seq", "head_seq", "earliest_seq")


class HttpFace:
    """A client of the HTTP API with one connection per thread.

    It closes all connections it opened.
    """

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._opened = ExitStack()
        self._of_thread = threading.local()

    def close(self) -> None:
        self._opened.close()

    @property
    def _connection(self) -> HTTPConnection:
        connection: HTTPConnection | None = getattr(self._of_thread, "connection", None)
        if connection is None:
            connection = HTTPConnection(self._endpoint, timeout=TIMEOUT)
            self._opened.callback(connection.close)
            self._of_thread.connection = connection
        return connection

    def call(self, verb: str, path: str, content: Any = None) -> Any:
        body = None if content is None else json.dumps(content)
        connection = self._connection
        connection.request(verb, f"/v0/{path}", body)
        answer = connection.getresponse()
        told = json.loads(answer.read())
        if answer.status >= 400:
            raise FaceError(answer.status, told["error"]["code"], told["error"]["message"])
        assert told.pop("performance")["server_total_ms"] >= 0
        return told

    # ---- topics --------------------------------------------------------------------------------

    def put_topic(self, name: str, **config: Any) -> Json:
        return self._one("PUT", "topics", name, config)

    def get_topic(self, name: str) -> Json:
        return self._one("GET", "topics", name)

    def list_topics(self) -> list[Json]:
        listed: list[Json] = self.call("GET", "topics")["topics"]
        return listed

    def delete_topic(self, name: str) -> Json:
        return self._one("DELETE", "topics", name)

    # ---- records -------------------------------------------------------------------------------

    def append(self, name: str, records: Sequence[Json], **extras: Any) -> Json:
        return self._one("POST", "topics", name, {"records": list(records), **extras})

    def read(self, name: str, **params: Any) -> Json:
        return self._one("POST", "topics", name, params, "/diff")

    def delete_records(self, name: str, **params: Any) -> Json:
        return self._one("POST", "topics", name, params, "/delete")

    # ---- routers -------------------------------------------------------------------------------

    def put_router(self, name: str, **config: Any) -> Json:
        return self._one("PUT", "routers", name, config)

    def get_router(self, name: str) -> Json:
        return self._one("GET", "routers", name)

    def list_routers(self, **params: Any) -> list[Json]:
        listed: list[Json] = self.call("GET", f"routers?{urlencode(params)}")["routers"]
        return listed

    def delete_router(self, name: str) -> Json:
        return self._one("DELETE", "routers", name)

    def _one(
        self, verb: str, collection: str, name: str, content: Any = None, action: str = ""
    ) -> Json:
        told: Json = self.call(verb, f"{collection}/{quote(name, safe=':')}{action}", content)
        return told

    # ---- watching ------------------------------------------------------------------------------

    def watch(self, topics: Mapping[str, Json], **options: Any) -> HttpWatch:
        begun = self.call("POST", "watch", {"topics": dict(topics), **options})
        watch = HttpWatch(self._endpoint, begun)
        self._opened.callback(watch.close)
        return watch


class HttpWatch:
    """A watch over HTTP. `begun` is the response that started it."""

    def __init__(self, endpoint: str, begun: Json) -> None:
        self._endpoint = endpoint
        self.wid: str = begun["wid"]
        assert begun["stream_url"] == f"/v0/watch/{self.wid}"
        self.session_ttl_ms: int = begun["session_ttl_ms"]
        self.topics = {
            name: {field: start[field] for field in _START}
            for name, start in begun["topics"].items()
        }
        self._reader = self._open({})

    def _open(self, headers: Mapping[str, str]) -> EventReader:
        try:
            return EventReader(self._endpoint, f"/v0/watch/{self.wid}", **headers)
        except Refused as refused:
            error = refused.content["error"]
            raise FaceError(refused.status, error["code"], error["message"]) from refused

    def next(self, timeout: float = TIMEOUT) -> Event:
        try:
            name, event_id, content = self._reader.next(timeout)
        except EOFError:
            raise StopIteration from None
        if name == "error":
            raise FaceError(_STATUS[content["code"]], content["code"], content["message"])
        return name, event_id or "", content

    def close(self) -> None:
        self._reader.close()

    def reopen(self, last_event_id: str | None = None) -> None:
        self.close()
        self._reader = self._open({"Last-Event-ID": last_event_id} if last_event_id else {})
