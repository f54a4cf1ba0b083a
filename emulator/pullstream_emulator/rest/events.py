"""The history of the broker's messages over HTTP.

GET    /v0/events         events of the history, the newest ones if there are too many
DELETE /v0/events         remove all events
GET    /v0/messages/ID    one message, decoded by its schema, with its events; needs ?topic=
GET    /v0/live           server-sent events: new events of the history, and each second the changes
                          of the status

With tokens, a caller sees the projects that its principal may use, and only a principal with access
to all projects removes events. docs/console.md describes the parameters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from pullstream_emulator.access import ALL_PROJECTS, Access
from pullstream_emulator.broker import Broker
from pullstream_emulator.engine.record import Record
from pullstream_emulator.faults.scope import EVERY, matches
from pullstream_emulator.history import Event, Kind
from pullstream_emulator.monitoring.status import MaySee
from pullstream_emulator.schemas.enforcement import NAME_ATTRIBUTE
from pullstream_protocol import names
from pullstream_protocol.errors import FailedPrecondition, InvalidArgument, NotFound
from pullstream_protocol.filter import Filter, compile_filter

from . import http_request
from .http_request import json_response, visible_projects
from .live_status import SHARED_FOR, LiveStatus
from .message_json import event_json, message_json
from .v0.event_stream import HEADERS
from .v0.events import event as server_sent

DEFAULT_EVENTS = 1000

# Interval between the batches of a live stream, in seconds, and most events in a batch. People
# cannot read more; the stream counts the events that it skips.
BATCH_INTERVAL = 0.25
MAX_BATCH = 50

# Interval between two statuses of a live stream, in batches.
STATUS_INTERVAL = 4

# Most messages that a live stream decodes for one batch, to compare them with a filter or a text.
MAX_EXAMINED = 1000

# Number of events after which a search lets other calls run.
_SEARCH_STEP = 500

PARAMETERS = ("kind", "resource", "topic", "message", "filter", "text", "after", "limit", "show")
_SHOWN = ("events", "status")


@dataclass(frozen=True)
class EventQuery:
    """The events that a caller wants to see.

    Attributes:
        kinds: Kinds of events; empty for all.
        resource: Name, id or pattern of the topic or subscription.
        topic: Full name of the topic of the messages; empty for all.
        message_id: Id of the message; empty for all.
        accepts: Filter of the messages' attributes; None for all.
        text: Text that the message must contain, in its data, its attributes or its ordering key.
        may_see: Whether the caller sees a project.
        topic_of: Returns the topic of a topic or subscription; empty if it is unknown.
    """

    kinds: frozenset[Kind]
    resource: str
    topic: str
    message_id: str
    accepts: Filter | None
    text: bytes
    may_see: MaySee
    topic_of: Callable[[str], str]

    def is_wanted(self, kind: Kind, resource: str) -> bool:
        """Return whether events of this kind and resource are wanted; ignores the message."""
        return (
            (not self.kinds or kind in self.kinds)
            and (self.resource == EVERY or matches(self.resource, resource))
            and (not self.topic or self.topic_of(resource) == self.topic)
            and self.may_see(names.project_of(resource))
        )

    @property
    def examines_messages(self) -> bool:
        """Whether `accepts_message` may reject a message."""
        return bool(self.message_id or self.accepts or self.text)

    def accepts_message(self, event: Event) -> bool:
        """Return whether the message of a wanted event is wanted."""
        if self.message_id and event.message_id != self.message_id:
            return False
        if self.text and self.text not in event.record.encoded:
            return False
        return self.accepts is None or self.accepts(event.message.attributes)


class Events:
    """Answers requests for the history of one broker, on the broker's event loop.

    Args:
        broker: The broker.
        access: Checks tokens; None allows everything to everybody.
        live: The status of the resources.
        members: Returns the other members of the status for a caller, as JSON.
    """

    def __init__(
        self,
        broker: Broker,
        access: Access | None,
        live: LiveStatus,
        members: Callable[[MaySee], str],
    ) -> None:
        self._broker = broker
        self._history = broker.history
        self._access = access
        self._live = live
        self._members = members
        self._is_closing = False

    def routes(self) -> list[web.RouteDef]:
        """Return the routes. Their handlers check the caller's token."""
        return [
            web.get("/v0/events", self.list_events),
            web.delete("/v0/events", self.clear),
            web.get("/v0/messages/{id}", self.message),
            web.get("/v0/live", self.live),
        ]

    async def list_events(self, request: web.Request) -> web.Response:
        """Answer with events, oldest first."""
        query = self._query(request)
        self._check_history()
        after = http_request.number(request, "after", 0)
        limit = http_request.number(request, "limit", DEFAULT_EVENTS, minimum=1)
        if query.examines_messages:
            candidates = self._history.newest_first(
                query.is_wanted, after=after, message_id=query.message_id
            )
            found, further = await _search(candidates, query, limit)
        else:
            found, further = self._history.select(query.is_wanted, after=after, limit=limit)
        content = {
            "events": [self._shown(event) for event in found],
            "skipped": further,
            "oldest": self._history.oldest,
            "newest": self._history.newest,
        }
        return json_response(content)

    async def clear(self, request: web.Request) -> web.Response:
        """Remove all events."""
        if self._access is not None:
            self._access.check(http_request.authorization(request), ALL_PROJECTS)
        self._history.clear()
        return json_response({})

    async def message(self, request: web.Request) -> web.Response:
        """Answer with one message and its events."""
        query, message_id = self._query(request), request.match_info["id"]
        if not query.topic:
            raise InvalidArgument(
                "The parameter topic is missing; it must be the full name of the message's topic, "
                "because ids start at 1 in each topic."
            )
        found = list(self._history.newest_first(query.is_wanted, message_id=message_id))
        record = found[0].record if found else self._kept(query, message_id)
        if record is None:
            raise NotFound(
                f"The broker has no message {message_id} of {query.topic} any more: every "
                f"subscription has acknowledged it, and the history keeps the newest "
                f"{self._history.limit} events. --history N sets another number."
            )
        # A topic that was deleted and created again gives its ids again, to other messages.
        events = [self._shown(event) for event in reversed(found) if event.record is record]
        for event in events:
            del event["message"]
        content: dict[str, Any] = {
            "topic": query.topic,
            "message": message_json(record, most_bytes=None),
            "events": events,
        }
        decoded = self._decoded(query, record)
        if decoded is not None:
            content["decoded"] = decoded
        return json_response(content)

    def _decoded(self, query: EventQuery, record: Record) -> Any:
        """Return the data of a message by its schema; None without a schema, or if it is hidden.

        A topic may use the schema of a project that the caller may not see.
        """
        message = record.message()
        schema = message.attributes.get(NAME_ATTRIBUTE, "")
        if not schema.startswith("projects/") or not query.may_see(names.project_of(schema)):
            return None
        return self._broker.schemas.decoded(message)

    async def live(self, request: web.Request) -> web.StreamResponse:
        """Send new events and the status until the client disconnects or the broker stops."""
        query = self._query(request)
        shown = _choices(request, "show", _SHOWN) or _SHOWN
        after = http_request.number(request, "after", self._history.newest)
        response = web.StreamResponse(headers=HEADERS)
        with suppress(ConnectionError):
            await response.prepare(request)
            await self._send_live(response, query, shown, after)
        return response

    async def _send_live(
        self, response: web.StreamResponse, query: EventQuery, shown: Sequence[str], after: int
    ) -> None:
        turn, version = 0, 0
        while not self._is_closing:
            if after > self._history.newest:
                # The numbers have started again: this is another run of the broker.
                after = 0
            text = ""
            if "status" in shown and turn % STATUS_INTERVAL == 0:
                text, version = await self._status(query.may_see, version)
            if "events" in shown and self._history.newest > after:
                events, skipped = self._batch(query, after)
                after = self._history.newest
                if events or skipped:
                    shown_events = [self._shown(event) for event in events]
                    content = {"events": shown_events, "skipped": skipped, "newest": after}
                    text += server_sent("events", content)
            if text:
                await response.write(text.encode())
            turn += 1
            await asyncio.sleep(BATCH_INTERVAL)

    async def _status(self, may_see: MaySee, since: int) -> tuple[str, int]:
        """Return an event with the whole status, or with its changes, and its version.

        Args:
            may_see: Returns whether the caller sees a project.
            since: The version that the reader has; 0 if it has none.
        """
        live = self._live
        if since and live.has_changes_since(since):
            await live.refresh(SHARED_FOR)
            name, version, resources = "changes", live.version, live.changes(since, may_see)
        else:
            await live.refresh()
            name, version, resources = "status", live.version, await live.whole(may_see)
        content = f"{self._members(may_see)},{resources}".rstrip(",")
        return f"event: {name}\ndata: {{{content}}}\n\n", version

    def _batch(self, query: EventQuery, after: int) -> tuple[list[Event], int]:
        """Return the newest events after a number, and how many others there are."""
        most = MAX_EXAMINED if query.examines_messages else MAX_BATCH
        events, skipped = self._history.select(query.is_wanted, after=after, limit=most)
        if query.examines_messages:
            events = [event for event in events if query.accepts_message(event)]
            skipped += max(len(events) - MAX_BATCH, 0)
            events = events[-MAX_BATCH:]
        return events, skipped

    async def close(self, _: web.Application) -> None:
        """End all live streams at their next batch."""
        self._is_closing = True

    # ---- requests ------------------------------------------------------------------------------

    def _query(self, request: web.Request) -> EventQuery:
        """Return the query of a request.

        Raises:
            InvalidArgument: A parameter is unknown or malformed.
        """
        may_see, given = visible_projects(request, self._access), request.query
        http_request.check_parameters(request, PARAMETERS)
        text = given.get("filter", "")
        return EventQuery(
            frozenset(Kind(kind) for kind in _choices(request, "kind", [k.value for k in Kind])),
            given.get("resource", EVERY),
            given.get("topic", ""),
            given.get("message", ""),
            compile_filter(text) if text else None,
            given.get("text", "").encode(),
            may_see,
            self._topic_of,
        )

    def _check_history(self) -> None:
        if not self._history.limit:
            raise FailedPrecondition("This broker keeps no history. Start it without --history 0.")

    def _kept(self, query: EventQuery, message_id: str) -> Record | None:
        """Return an unacknowledged message of a topic; None if there is none with this id."""
        topic = self._broker.engine.registry.topics.get(query.topic)
        if topic is None or not query.may_see(names.project_of(query.topic)):
            return None
        seq = int(message_id) if message_id.isdecimal() and len(message_id) < 20 else 0
        unfinished = (each.messages.seqs for each in topic.subscriptions.values())
        return topic.log.record(seq) if any(seq in seqs for seqs in unfinished) else None

    def _shown(self, event: Event) -> dict[str, Any]:
        return event_json(event, self._topic_of(event.resource))

    def _topic_of(self, resource: str) -> str:
        """Return the topic of a topic or subscription; empty if the subscription was deleted."""
        if "/topics/" in resource:
            return resource
        subscription = self._broker.engine.registry.subscriptions.get(resource)
        return "" if subscription is None else subscription.config.topic


async def _search(
    candidates: Iterator[Event], query: EventQuery, limit: int
) -> tuple[list[Event], int]:
    """Return the newest events whose message is wanted, oldest first, and the number of others."""
    found: list[Event] = []
    further = 0
    for position, event in enumerate(candidates, 1):
        if query.accepts_message(event):
            if len(found) < limit:
                found.append(event)
            else:
                further += 1
        if position % _SEARCH_STEP == 0:
            await asyncio.sleep(0)
    found.reverse()
    return found, further


def _choices(request: web.Request, name: str, known: Sequence[str]) -> list[str]:
    given = [each for each in request.query.get(name, "").split(",") if each]
    for each in given:
        if each not in known:
            allowed = ", ".join(known)
            raise InvalidArgument(
                f"The parameter {name} is {each[:100]!r}; it must be one or more of {allowed}."
            )
    return given
