"""Watches over HTTP: one request makes the session, another opens its stream.

So a browser's EventSource can open it, which sends neither a body nor headers of one's own.
"""

from __future__ import annotations

import contextlib
from typing import Any
from weakref import WeakKeyDictionary

from aiohttp import web

from emulator.access.caller import caller
from emulator.feeds import Feeds, Watch, resume_token
from emulator.feeds.feeds import MAX_WATCHED
from emulator.rest.calls import CallerGone, Calls
from emulator.services.feeds import check_creator
from protocol.errors import InvalidArgument, NotFound, RpcError
from protocol.messages import feeds_pb2 as feeds

from . import errors
from .event_stream import EventStream
from .events import Presentation
from .fields import MAX_INT32, Fields, text
from .reading import position
from .records import View
from .request import V0Request

FIELDS = (
    "topics", "cursor", "node", "limit", "max_batch_bytes", "heartbeat_ms", "include_data",
    "include_tags", "include_meta",
)  # fmt: skip
TOPIC_FIELDS = ("from_seq", "tail", "epoch", "filter")

# What a watch brings down or up to what it may be is no error here, if only it is a number.
_LONG_MS = 3_600_000

# What a client says of a kind that it does not take.
_ZERO = frozenset({"q=0", "q=0.0", "q=0.00", "q=0.000"})


class Watches:
    """The sessions that were begun over HTTP. On the event loop that owns the broker's engine.

    A session opens to whoever knows its id, which nobody can guess; where there are access tokens,
    to its creator only, so that an id in a log is of no use. One that was begun over gRPC does not
    open here.

    Args:
        feeds: owns the watches.
        calls: carries out the RPC that serves a stream.
    """

    def __init__(self, feeds: Feeds, calls: Calls) -> None:
        self._feeds = feeds
        self._calls = calls
        # How each is told; forgotten when the broker has forgotten the watch.
        self._presentations: WeakKeyDictionary[Watch, Presentation] = WeakKeyDictionary()

    async def create(self, asked: V0Request) -> dict[str, Any]:
        fields = Fields(asked.content(), FIELDS)
        view = View.of(fields)
        starts = _starts(asked, fields.required("topics"))
        spec = feeds.WatchSpec(
            topics={path: start for path, (_, start) in starts.items()},
            exclude_node=fields.text("node"),
            max_messages=fields.clamped("limit", MAX_INT32),
            max_bytes=fields.whole("max_batch_bytes"),
            include_data=view.data,
        )
        if "heartbeat_ms" in fields:
            spec.heartbeat.FromMilliseconds(fields.clamped("heartbeat_ms", _LONG_MS))
        watch = self._feeds.create(spec, _event_id(fields.text("cursor"), "cursor"))
        watch.creator = caller()
        names = {path: name for path, (name, _) in starts.items()}
        self._presentations[watch] = Presentation(names, view)
        opened = watch.opened().opened
        return {
            "wid": watch.id,
            "stream_url": f"/v0/watch/{watch.id}",
            "session_ttl_ms": opened.session_ttl.ToMilliseconds(),
            "topics": {name: _start(opened.topics[path]) for path, name in names.items()},
        }

    async def open(self, asked: V0Request) -> web.StreamResponse:
        if not _takes_events(asked.http):
            told = errors.body("not_acceptable", "A watch is events: accept text/event-stream.")
            raise web.HTTPNotAcceptable(text=told, headers=errors.JSON)
        stream = EventStream(asked.http, self._presentations[self._find(asked)].event)
        token = _event_id(asked.http.headers.get("Last-Event-ID", ""), "Last-Event-ID")
        request = feeds.WatchRequest(watch_id=asked.name, resume_token=token)
        try:
            await self._calls.carry_out("Watch", request, stream)
        except CallerGone:
            # There is nobody to tell. The session waits for him to come back.
            pass
        except RpcError as error:
            if stream.response is None:
                raise
            with contextlib.suppress(ConnectionError):
                await stream.fail(error)
        return stream.response or web.Response()

    async def delete(self, asked: V0Request) -> dict[str, Any]:
        """Of one that is over, too: then nothing is deleted."""
        try:
            self._feeds.end(self._find(asked).id)
        except NotFound:
            return {"wid": asked.name, "deleted": False}
        return {"wid": asked.name, "deleted": True}

    def _find(self, asked: V0Request) -> Watch:
        """The watch that the path names, if it is the caller's, and was begun here."""
        watch = self._feeds.find(asked.name)
        check_creator(watch)
        if watch not in self._presentations:
            raise NotFound(f"The watch {watch.id} was not begun over HTTP.")
        return watch


def _starts(asked: V0Request, topics: Any) -> dict[str, tuple[str, feeds.Position]]:
    """Of each topic's path the name that it was given, and where to begin."""
    if not isinstance(topics, dict):
        raise InvalidArgument("topics must be an object: a topic's name, and where to begin.")
    if not 1 <= len(topics) <= MAX_WATCHED:
        raise InvalidArgument(f"topics must have from 1 to {MAX_WATCHED} members: {len(topics)}.")
    starts: dict[str, tuple[str, feeds.Position]] = {}
    for name, start in topics.items():
        path = asked.topic_path(text(name, "A name in topics"))
        if path in starts:
            raise InvalidArgument(f"topics has {name} twice, once percent-encoded.")
        starts[path] = (name, position(Fields(start, TOPIC_FIELDS, f"topics[{name}].")))
    return starts


def _event_id(value: str, at: str) -> str:
    try:
        resume_token.decode(text(value, at))
    except InvalidArgument as error:
        raise InvalidArgument(f"{at} must be the id of an event.") from error
    return value


def _start(start: feeds.Frame.Start) -> dict[str, Any]:
    return {
        "from_seq": start.after_seq,
        "head_seq": start.head_seq,
        "earliest_seq": start.earliest_seq,
        "epoch": str(start.epoch),
    }


def _takes_events(request: web.Request) -> bool:
    """Whether the client accepts text/event-stream; one that says nothing takes anything."""
    accepted = ",".join(request.headers.getall("Accept", ())) or "*/*"
    for entry in accepted.split(","):
        kind, *parameters = (part.strip().lower() for part in entry.split(";"))
        if kind in ("*/*", "text/*", "text/event-stream") and not _ZERO.intersection(parameters):
            return True
    return False
