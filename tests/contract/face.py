"""One way to speak to feeds, whatever the protocol: the contract suite runs over each.

Values are the JSON forms of /v0. What a face returns is what its protocol told; where gRPC has
another form for the same thing, GrpcFace translates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

# Nothing here takes longer on any machine; it turns a hang into a failure.
PATIENCE = 20.0

Json = dict[str, Any]
# A frame's name, the token that stands for the positions after it ("" if it has none), and what it
# holds. Names: record, tombstone, caught-up, topic-deleted, hb.
Event = tuple[str, str, Any]


class FaceError(Exception):
    """A call was refused: HTTP status, the error's code, and its text."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message


class WatchHandle(Protocol):
    """One watch with an open stream."""

    wid: str
    session_ttl_ms: int
    # Of each topic from_seq, head_seq and earliest_seq, as they were when the watch began.
    topics: dict[str, Json]

    def next(self, timeout: float = PATIENCE) -> Event:
        """The next event; raises TimeoutError, FaceError, or StopIteration at the stream's end."""

    def close(self) -> None:
        """Leave the stream. The session stays."""

    def reopen(self, last_event_id: str | None = None) -> None:
        """Open a stream of the same session, in the place of the one there was."""


class Face(Protocol):
    """The calls of seed 002. Optional settings and parameters have the names of /v0."""

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


# ---- what tests ask of any face ------------------------------------------------------------------


def texts(*data: Any) -> list[Json]:
    """Records with this data and nothing else."""
    return [{"data": each} for each in data]


def data_of(event: Event) -> list[Any]:
    """The data of a record event."""
    assert event[0] == "record", event
    return [record["data"] for record in event[2]["records"]]


def next_records(watch: WatchHandle, count: int) -> list[Any]:
    """The data of exactly so many records, from as many record events as it takes."""
    data: list[Any] = []
    while len(data) < count:
        data += data_of(watch.next())
    assert len(data) == count, data
    return data


def expect(watch: WatchHandle, *names: str) -> list[Event]:
    """The next events, which must have these names."""
    events = [watch.next() for _ in names]
    assert [event[0] for event in events] == list(names), events
    return events
