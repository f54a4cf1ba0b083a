"""Cursors: named positions of readers, stored by the broker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, ItemsView

from google.protobuf.empty_pb2 import Empty

from pullstream_emulator.engine.observer import Observer, Resource
from pullstream_emulator.engine.resources.by_name import ByName
from pullstream_emulator.engine.resources.registry import check_room, page_of_project
from pullstream_emulator.error_texts import missing, too_large, too_small
from pullstream_protocol import names
from pullstream_protocol.errors import FailedPrecondition
from pullstream_protocol.messages import feeds_pb2 as feeds

from .feed import Feed

# Maximum number of cursors in a project.
MAX_CURSORS = 10_000


class Cursors:
    """All cursors of a broker. Single owner, as for the engine.

    Args:
        feed_of: Returns the feed of a topic; raises NotFound if the topic does not exist.
        wall: Returns the wall-clock time in seconds.
        observer: Notified of every change of a cursor.
    """

    def __init__(
        self,
        *,
        feed_of: Callable[[str], Feed],
        wall: Callable[[], float],
        observer: Observer | None = None,
    ) -> None:
        self._feed_of = feed_of
        self._wall = wall
        self._observer = observer or Observer()
        self._cursors: ByName[feeds.Cursor] = ByName()
        self._by_topic: defaultdict[str, set[str]] = defaultdict(set)

    def put(self, request: feeds.PutCursorRequest) -> feeds.Cursor:
        """Store a position. It may be lower than the stored one.

        A position with an epoch is refused unless the epoch is the topic's present one. A position
        without an epoch counts as one of the present epoch.

        Raises:
            InvalidArgument: A name is malformed, or the topic has not assigned this number yet.
            NotFound: The topic does not exist.
            FailedPrecondition: The topic was created again after the position was read, or the
                cursor belongs to another topic.
            ResourceExhausted: The project has the maximum number of cursors.
        """
        given = request.cursor
        names.validate("cursors", given.name)
        names.validate("topics", given.topic)
        if given.seq < 0:
            raise too_small("cursor.seq", given.seq, 0)
        known = self._cursors.get(given.name)
        if known is not None and known.topic != given.topic:
            raise FailedPrecondition(
                f"Cursor {names.short_id(given.name)} belongs to {known.topic}, not to "
                f"{given.topic}. Delete it first, or choose another name.",
                reason="CURSOR_OF_OTHER_TOPIC",
            )
        feed = self._feed_of(given.topic)
        if given.epoch not in (0, feed.epoch):
            raise FailedPrecondition(
                f"The position is of epoch {given.epoch}, but {names.short_id(given.topic)} was "
                f"deleted and created again and is in epoch {feed.epoch}. Read the topic again.",
                reason="CURSOR_OF_OTHER_EPOCH",
            )
        if given.seq > feed.head:
            raise too_large("cursor.seq", given.seq, feed.head)
        if known is None:
            check_room("cursors", self._cursors, given.name, MAX_CURSORS)
        cursor = feeds.Cursor(name=given.name, topic=given.topic, seq=given.seq, epoch=feed.epoch)
        cursor.update_time.FromMilliseconds(int(self._wall() * 1000))
        self._enter(cursor)
        self._observer.saved(Resource.CURSOR, cursor.name, cursor.SerializeToString())
        return cursor

    def get(self, request: feeds.GetCursorRequest) -> feeds.Cursor:
        """Return a cursor; raise NotFound if it does not exist."""
        cursor = self._cursors.get(request.name)
        if cursor is None:
            raise missing(names.validate("cursors", request.name))
        return cursor

    def list(self, request: feeds.ListCursorsRequest) -> feeds.ListCursorsResponse:
        """Return a page of a project's cursors."""
        listed, token = page_of_project(self._cursors, request)
        return feeds.ListCursorsResponse(cursors=listed, next_page_token=token)

    def all(self) -> ItemsView[str, feeds.Cursor]:
        """Return all cursors, with their full names."""
        return self._cursors.items()

    def delete(self, request: feeds.DeleteCursorRequest) -> Empty:
        """Delete a cursor.

        Raises:
            NotFound: The cursor does not exist.
        """
        name = names.validate("cursors", request.name)
        if name not in self._cursors:
            raise missing(name)
        self._remove(name)
        return Empty()

    def deleted(self, topic: str) -> None:
        """Delete the cursors of a deleted topic."""
        for name in sorted(self._by_topic.get(topic, ())):
            self._remove(name)

    def restore(self, value: bytes) -> None:
        """Load a persisted cursor. The observer is not notified."""
        self._enter(feeds.Cursor.FromString(value))

    def _enter(self, cursor: feeds.Cursor) -> None:
        self._cursors[cursor.name] = cursor
        self._by_topic[cursor.topic].add(cursor.name)

    def _remove(self, name: str) -> None:
        cursor = self._cursors.pop(name)
        of_topic = self._by_topic[cursor.topic]
        of_topic.discard(name)
        if not of_topic:
            del self._by_topic[cursor.topic]
        self._observer.removed(Resource.CURSOR, name)
