"""Watches over HTTP: one request creates the session, another opens its stream.

This lets a browser's EventSource open the stream, which can send neither a body nor custom headers.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated, Any
from weakref import WeakKeyDictionary

from aiohttp import web
from msgspec import Meta, Raw

from pullstream_emulator.access.current_principal import caller
from pullstream_emulator.logs import Feeds, WatchSession, resume_token
from pullstream_emulator.logs.feeds import MAX_WATCHED
from pullstream_emulator.rest import http_request
from pullstream_emulator.rest.rpc_bridge import CallerGone, RpcBridge
from pullstream_emulator.services.feeds import check_creator
from pullstream_protocol.errors import InvalidArgument, NotFound, RpcError
from pullstream_protocol.messages import encoded_pb2 as encoded
from pullstream_protocol.messages import feeds_pb2 as feeds

from . import errors
from .event_stream import EventStream
from .events import Presentation
from .json_body import MAX_INT32, Body, WholeNumber, read
from .reading import Start, position
from .records import MAX_RECORDS_WRITTEN, View
from .request import V0Request, valid_text

# Watches limit these values, so any number is accepted here.
_LONG_MS = 3_600_000

# Parameters of an Accept entry that exclude the media type.
_ZERO = frozenset({"q=0", "q=0.0", "q=0.00", "q=0.000"})


class WatchBody(Body):
    """The body that creates a watch."""

    topics: Annotated[dict[str, Raw], Meta(min_length=1, max_length=MAX_WATCHED)]
    cursor: str | None = None
    node: str | None = None
    limit: WholeNumber | None = None
    max_batch_bytes: WholeNumber | None = None
    heartbeat_ms: WholeNumber | None = None
    include_data: bool | None = None
    include_tags: bool | None = None
    include_meta: bool | None = None


class Watches:
    """The sessions that were created over HTTP. Runs on the event loop that owns the engine.

    A session is open to every caller that knows its id, which cannot be guessed. If there are
    access tokens, it is open to its creator only, so that nobody can use an id from a log. A
    session that was created over gRPC cannot be opened here.

    Args:
        feeds: Owns the watches.
        calls: Runs the RPC that serves a stream.
    """

    def __init__(self, feeds: Feeds, calls: RpcBridge) -> None:
        self._feeds = feeds
        self._calls = calls
        # The form of each watch's events; removed together with the watch.
        self._presentations: WeakKeyDictionary[WatchSession, Presentation] = WeakKeyDictionary()

    async def create(self, request: V0Request) -> dict[str, Any]:
        """Create a session from the body's topics and positions; its stream is opened later."""
        body = request.content(WatchBody)
        view = View.of(body.include_data, body.include_tags, body.include_meta)
        starts = _starts(request, body.topics)
        spec = feeds.WatchSpec(
            topics={path: start for path, (_, start) in starts.items()},
            exclude_node=body.node,
            max_messages=min(body.limit or 0, MAX_INT32),
            max_bytes=body.max_batch_bytes,
            include_data=view.data,
        )
        if body.heartbeat_ms is not None:
            spec.heartbeat.FromMilliseconds(min(body.heartbeat_ms, _LONG_MS))
        watch = self._feeds.create(spec, _event_id(body.cursor or "", "cursor"))
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

    async def open(self, request: V0Request) -> web.StreamResponse:
        """Send a session's events until the client disconnects or the session ends."""
        if not _takes_events(request.http):
            text = errors.body("not_acceptable", "A watch sends events: accept text/event-stream.")
            raise web.HTTPNotAcceptable(text=text, headers=http_request.JSON)
        watch = self._find(request)
        presentation = self._presentations[watch]

        async def event_of(frame: encoded.EncodedFrame) -> str:
            size = sum(map(len, frame.messages.messages))
            if size <= MAX_RECORDS_WRITTEN:
                text = presentation.event(frame)
            else:
                text = await asyncio.to_thread(presentation.event, frame)
            # Escapes and base64 can make the text longer than the frame.
            watch.reserve_more(max(0, len(text) - frame.ByteSize()))
            return text

        stream = EventStream(request.http, event_of)
        token = _event_id(request.http.headers.get("Last-Event-ID", ""), "Last-Event-ID")
        message = feeds.WatchRequest(watch_id=request.name, resume_token=token)
        try:
            await self._calls.carry_out("Watch", message, stream)
        except CallerGone:
            # The client is gone. The session waits for it to reconnect.
            pass
        except RpcError as error:
            if stream.response is None:
                raise
            with contextlib.suppress(ConnectionError):
                await stream.fail(error)
        return stream.response or web.Response()

    async def delete(self, request: V0Request) -> dict[str, Any]:
        """Delete a watch; for one that has ended, report that nothing was deleted."""
        try:
            self._feeds.end(self._find(request).id)
        except NotFound:
            return {"wid": request.name, "deleted": False}
        return {"wid": request.name, "deleted": True}

    def _find(self, request: V0Request) -> WatchSession:
        """Return the watch in the path; it must be the caller's, and created over HTTP."""
        watch = self._feeds.find(request.name)
        check_creator(watch)
        if watch not in self._presentations:
            raise NotFound(f"Watch {watch.id} was not created over HTTP.")
        return watch


def _starts(request: V0Request, topics: dict[str, Raw]) -> dict[str, tuple[str, feeds.Position]]:
    """Return the given name and the start position for each topic's path."""
    starts: dict[str, tuple[str, feeds.Position]] = {}
    for name, start in topics.items():
        path, at = request.topic_path(name), f"topics[{name}]"
        if path in starts:
            raise InvalidArgument(f"topics contains {name} twice, once percent-encoded.")
        starts[path] = (name, position(read(start, Start, at), f"{at}."))
    return starts


def _event_id(value: str, at: str) -> str:
    try:
        resume_token.decode(valid_text(value, at))
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
    """Return whether the client accepts text/event-stream. No Accept header accepts everything."""
    accepted = ",".join(request.headers.getall("Accept", ())) or "*/*"
    for entry in accepted.split(","):
        kind, *parameters = (part.strip().lower() for part in entry.split(";"))
        if kind in ("*/*", "text/*", "text/event-stream") and not _ZERO.intersection(parameters):
            return True
    return False
