"""Cursors: readers' positions, kept by the broker under names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from google.protobuf.empty_pb2 import Empty

from emulator.engine.observer import Observer, Resource
from emulator.engine.registry import check_room, page_of_project
from emulator.refusals import missing, too_large, too_small
from protocol import names
from protocol.errors import FailedPrecondition
from protocol.messages import feeds_pb2 as feeds

from .feed import Feed

# How many a project may have.
MAX_CURSORS = 10_000


class Cursors:
    """All cursors of a broker. Single owner, as the engine.

    feed_of: gives the feed of a topic; raises NotFound if there is no topic. wall: seconds.
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
        self._cursors: dict[str, feeds.Cursor] = {}
        self._by_topic: defaultdict[str, set[str]] = defaultdict(set)

    def put(self, request: feeds.PutCursorRequest) -> feeds.Cursor:
        """Keep a position, also one before that which is kept.

        With an epoch it is refused unless that is the topic's present one; without, it is taken for
        the present one.

        Raises:
            InvalidArgument: a name is malformed, or the number is none that the topic has given.
            NotFound: there is no such topic.
            FailedPrecondition: the topic was made again since the position was learned, or the
                cursor is one of another topic.
            ResourceExhausted: the project has as many as it may.
        """
        given = request.cursor
        names.validate("cursors", given.name)
        names.validate("topics", given.topic)
        if given.seq < 0:
            raise too_small("cursor.seq", given.seq, 0)
        known = self._cursors.get(given.name)
        if known is not None and known.topic != given.topic:
            raise FailedPrecondition(
                f"Cursor {names.short_id(given.name)} is one of {known.topic}, not of "
                f"{given.topic}; delete it first.",
                reason="CURSOR_OF_OTHER_TOPIC",
            )
        feed = self._feed_of(given.topic)
        if given.epoch not in (0, feed.epoch):
            raise FailedPrecondition(
                f"The position is of epoch {given.epoch}; {names.short_id(given.topic)} was "
                f"deleted and made again, and is in epoch {feed.epoch}.",
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
        cursor = self._cursors.get(request.name)
        if cursor is None:
            raise missing(names.validate("cursors", request.name))
        return cursor

    def list(self, request: feeds.ListCursorsRequest) -> feeds.ListCursorsResponse:
        listed, token = page_of_project("cursors", self._cursors, request)
        return feeds.ListCursorsResponse(cursors=listed, next_page_token=token)

    def delete(self, request: feeds.DeleteCursorRequest) -> Empty:
        """Forget a position.

        Raises:
            NotFound: there is none of this name.
        """
        name = names.validate("cursors", request.name)
        if name not in self._cursors:
            raise missing(name)
        self._remove(name)
        return Empty()

    def deleted(self, topic: str) -> None:
        """A topic was deleted, and its cursors with it."""
        for name in sorted(self._by_topic.get(topic, ())):
            self._remove(name)

    def restore(self, value: bytes) -> None:
        """Take up a cursor that an observer was told of; tells the observer nothing."""
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
