"""Common interface to feeds over any protocol. The contract suite runs over each protocol.

Values are the JSON forms of /v0. A face returns the data that its protocol sent. Where gRPC has
another form for the same data, GrpcFace translates it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import pytest

# Seconds. No step takes longer on any machine; the limit turns a hang into a failure.
TIMEOUT = 20.0

Json = dict[str, Any]
# The name of a frame, the token for the positions after it ("" if it has none), and its content.
# The names are record, tombstone, caught-up, topic-deleted and hb.
Event = tuple[str, str, Any]


class FaceError(Exception):
    """A refused call: its HTTP status, error code and error text."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message


@contextmanager
def refused(status: int, code: str = "") -> Iterator[None]:
    """Expect a refusal with this status, and with this code if one is given."""
    with pytest.raises(FaceError) as error:
        yield
    assert (error.value.status, code and error.value.code) == (status, code)


class WatchHandle(Protocol):
    """A watch with an open stream."""

    wid: str
    session_ttl_ms: int
    # The from_seq, head_seq and earliest_seq of each topic at the start of the watch.
    topics: dict[str, Json]

    def next(self, timeout: float = TIMEOUT) -> Event:
        """Return the next event.

        Raises:
            TimeoutError: No event has arrived in time.
            FaceError: The broker has ended the stream with an error.
            StopIteration: The stream has ended.
        """

    def close(self) -> None:
        """Close the stream. The session continues to exist."""

    def reopen(self, last_event_id: str | None = None) -> None:
        """Open another stream of the same session in place of the present one."""


class Face(Protocol):
    """The calls of the feed contracts. Optional settings and parameters have the names of /v0."""

    def put_topic(self, name: str, **config: Any) -> Json: ...

    def get_topic(self, name: str) -> Json: ...

    def list_topics(self) -> list[Json]: ...

    def delete_topic(self, name: str) -> Json: ...

    def append(self, name: str, records: Sequence[Json], **extras: Any) -> Json: ...

    def read(self, name: str, **params: Any) -> Json: ...

    def delete_records(self, name: str, **params: Any) -> Json: ...

    def put_router(self, name: str, **config: Any) -> Json: ...

    def get_router(self, name: str) -> Json: ...

    def list_routers(self, **params: Any) -> list[Json]: ...

    def delete_router(self, name: str) -> Json: ...

    def watch(self, topics: Mapping[str, Json], **options: Any) -> WatchHandle: ...

    def close(self) -> None: ...


# ---- helpers for tests over any face -------------------------------------------------------------


def texts(*data: Any) -> list[Json]:
    """Return records with these data and no other fields."""
    return [{"data": each} for each in data]


def data_of(event: Event) -> list[Any]:
    """Return the data of a record event."""
    assert event[0] == "record", event
    return [record["data"] for record in event[2]["records"]]


def next_records(watch: WatchHandle, count: int) -> list[Any]:
    """Return the data of exactly `count` records, read from as many record events as necessary."""
    data: list[Any] = []
    while len(data) < count:
        data += data_of(watch.next())
    assert len(data) == count, data
    return data


def expect(watch: WatchHandle, *names: str) -> list[Event]:
    """Return the next events, and check that they have these names."""
    events = [watch.next() for _ in names]
    assert [event[0] for event in events] == list(names), events
    return events
