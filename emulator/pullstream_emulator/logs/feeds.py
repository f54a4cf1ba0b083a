"""All feeds of a broker, with one method for each kind of request."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from copy import deepcopy

from pullstream_emulator.engine import Engine
from pullstream_emulator.engine.resources.registry import page_of_project
from pullstream_emulator.engine.resources.topics import Validate
from pullstream_emulator.engine.settings.durability import LABEL, Durability
from pullstream_emulator.engine.settings.durations import seconds_of
from pullstream_emulator.error_texts import too_large, too_small
from pullstream_protocol import names
from pullstream_protocol.errors import NotFound, RpcError
from pullstream_protocol.messages import encoded_pb2 as encoded
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from . import resume_token
from .append_limits import check_append
from .deletion import Deletion
from .feed import Feed, FeedObserver, Wake
from .feed_registry import FeedRegistry, random_epoch
from .idempotency import Appended
from .read import CheckedRead, ReadWait
from .reader_position import check_position, position_of
from .selection import Limits, Selection
from .sessions import Sessions
from .settings import DEFAULTS, DURABILITIES, FeedSettings
from .unsent import Unsent
from .watch import WatchSession, session_size
from .watched_topic import WatchedTopic

MAX_WATCHED = 256

DEFAULT_HEARTBEAT = 15.0
MIN_HEARTBEAT = 1.0
MAX_HEARTBEAT = 60.0


class Feeds:
    """The topics of an engine as feeds, and the watches of them. Same owner as the engine.

    A topic becomes a feed on its first use as one. Every method that takes a request checks all of
    it before it changes anything, and raises an error of pullstream_protocol.errors if the request
    is refused.

    Args:
        engine: The engine that owns the topics.
        default_durability: Durability class of topics that do not name one.
        observer: Notified of every change of a feed.
        new_epoch: Returns the epoch of a new feed. No two calls may return the same number.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        default_durability: Durability = Durability.MEMORY,
        observer: FeedObserver | None = None,
        new_epoch: Callable[[], int] = random_epoch,
    ) -> None:
        self._topics = engine.topics
        self._registry = engine.registry
        self.feed_registry = FeedRegistry(
            engine,
            default_durability=default_durability,
            observer=observer or FeedObserver(),
            new_epoch=new_epoch,
        )
        self.feed = self.feed_registry.feed
        self._sessions = Sessions(
            engine.registry.now,
            engine.registry.timetable,
            engine.registry.usage,
            engine.topics.check_room,
        )
        self.find = self._sessions.find
        self.end = self._sessions.remove
        self._unsent = Unsent(engine.registry.usage, lambda: engine.topics.room)
        engine.topics.on_full = self._unsent.end_slow
        self._waiting: dict[ReadWait, None] = {}

    # ---- settings ------------------------------------------------------------------------------

    def put_feed(self, request: feeds.PutFeedRequest) -> feeds.Feed:
        """Create a feed, and its topic if there is none, or change the feed's settings."""
        name = names.validate("topics", request.topic)
        settings = FeedSettings.from_config(request.config)
        if name not in self._registry.topics:
            self._topics.create(pubsub.Topic(name=name))
        self._set_durability(name, request.config.durability)
        topic = self._registry.topic(name)
        created = topic.feed is None
        feed = self.feed_registry.feed_of(topic, settings)
        if feed.settings != settings:
            feed.configure(settings)
        return self.feed_registry.state(feed, created=created)

    def get_feed(self, request: feeds.GetFeedRequest) -> feeds.Feed:
        """Return a feed; raise NotFound for a topic that nobody has used as a feed."""
        topic = self._registry.topic(request.topic)
        if not isinstance(topic.feed, Feed):
            raise NotFound(
                f"The topic {request.topic} is not a feed yet. It becomes a feed when it is put, "
                "read, watched, routed or appended to."
            )
        return self.feed_registry.state(topic.feed)

    def list_feeds(self, request: feeds.ListFeedsRequest) -> feeds.ListFeedsResponse:
        """Return a page of a project's feeds; topics that were never used as one are left out."""
        listed, token = page_of_project(
            self._registry.topics, request, lambda topic: isinstance(topic.feed, Feed)
        )
        read = [topic.feed for topic in listed if isinstance(topic.feed, Feed)]
        return feeds.ListFeedsResponse(
            feeds=[self.feed_registry.state(feed) for feed in read], next_page_token=token
        )

    def _set_durability(self, name: str, named: feeds.Durability) -> None:
        """Set a topic's durability class: a label, so that any Pub/Sub client can set it, too."""
        if named == feeds.DURABILITY_UNSPECIFIED:
            return
        config = deepcopy(self._topics.get(name))
        durability = DURABILITIES[named].value
        if config.labels.get(LABEL) != durability:
            config.labels[LABEL] = durability
            request = pubsub.UpdateTopicRequest(topic=config)
            request.update_mask.paths.append("labels")
            self._topics.update(request)

    # ---- writing -------------------------------------------------------------------------------

    def append(
        self, request: feeds.AppendRequest, validate: Validate | None = None
    ) -> feeds.AppendResponse:
        """Append all messages, or none of them.

        Args:
            request: The messages.
            validate: Replaces the engine's schema validation.
        """
        name = names.validate("topics", request.topic)
        size = check_append(request)
        if name in self._registry.topics:
            return self._append(name, request, size, validate)
        if request.HasField("create") and not request.create:
            raise NotFound(f"There is no topic {name}, and the request has create=false.")
        # Check the room before creating the topic: no other check can fail after this point. If one
        # did, the new topic would be useless, and deleting it would also delete the routers that
        # wait for a topic of this name.
        self._topics.check_room(size)
        self._topics.create(pubsub.Topic(name=name))
        appended = self._append(name, request, size, validate)
        appended.created = True
        return appended

    def _append(
        self, name: str, request: feeds.AppendRequest, size: int, validate: Validate | None
    ) -> feeds.AppendResponse:
        topic = self._registry.topic(name)
        feed = self.feed_registry.feed_of(topic, DEFAULTS)
        key, now = request.idempotency_key, self._registry.now()
        if key:
            earlier = feed.keys.find(key, now.monotonic)
            if earlier is not None:
                return _appended(feed, earlier, deduped=True)
            feed.keys.check_room()
        first = feed.head + 1
        self._topics.append_checked(topic, request.messages, size, validate)
        appended = Appended(first, feed.head)
        if key:
            feed.keys.remember(key, appended, now.monotonic)
            self._registry.timetable.watch(feed.keys, now)
        return _appended(feed, appended)

    def delete_messages(
        self, request: feeds.DeleteMessagesRequest, deletion: Deletion | None = None
    ) -> feeds.DeleteMessagesResponse:
        """Remove messages from a feed's window for good. Readers see no gap.

        Args:
            request: The messages.
            deletion: The deletion of this request, if all its steps but the last are done.
        """
        if deletion is None:
            deletion = self.deletion(request)
            while deletion.work():
                pass
        return feeds.DeleteMessagesResponse(deleted=deletion.finish())

    def deletion(self, request: feeds.DeleteMessagesRequest) -> Deletion:
        """Return the deletion, for a caller that runs its steps itself."""

        def trimmed(name: str) -> Feed:
            feed = self.feed(name)
            # Records that are already too old are trimmed, not deleted: readers see a gap.
            feed.trim(self._registry.now())
            return feed

        return Deletion(request, trimmed)

    # ---- reading -------------------------------------------------------------------------------

    def read(self, request: feeds.ReadRequest) -> encoded.EncodedReadResponse:
        """Return the records available now. To wait for more, the caller uses `wait_for`."""
        reading = CheckedRead(request)
        feed = self.feed(request.topic)
        feed.trim(self._registry.now())
        return reading.answer(feed)

    def wait_for(self, topic: str, wake: Wake) -> ReadWait:
        """Call `wake` once when the topic grows or is deleted, or when the broker stops.

        `wake` must only set a flag, because the engine calls it in the middle of its work.
        """
        waiting = ReadWait(self.feed(topic), wake, lambda over: self._waiting.pop(over, None))
        self._waiting[waiting] = None
        return waiting

    # ---- watching ------------------------------------------------------------------------------

    def create(self, spec: feeds.WatchSpec, token: str = "") -> WatchSession:
        """Create a watch session. A position in `token` takes precedence over one in `spec`.

        If the token contains a topic that was deleted since, the session starts by reporting the
        deletion, as it would have done to a connected reader.

        Raises:
            NotFound: A topic that is not in the token does not exist.
            ResourceExhausted: There are too many sessions, or there is no room for another one.
        """
        positions = resume_token.decode(token)
        if not spec.topics:
            raise too_small("topics", 0, 1)
        if len(spec.topics) > MAX_WATCHED:
            raise too_large("topics", len(spec.topics), MAX_WATCHED)
        limits = Limits.clamped(spec.max_messages, spec.max_bytes)
        heartbeat = _heartbeat_of(spec)
        include_data = not spec.HasField("include_data") or spec.include_data
        selections = {
            name: Selection(position.filter, spec.exclude_node, include_data=include_data)
            for name, position in spec.topics.items()
        }
        for name, position in spec.topics.items():
            check_position(position)
            if name not in positions:
                self._registry.topic(name)
        size = session_size(spec)
        self._sessions.check_room(size)
        now = self._registry.now()
        watched = {}
        for name in sorted(spec.topics):
            resumed = positions.get(name)
            if resumed is not None and name not in self._registry.topics:
                feed = self.feed_registry.gone(name, resumed.epoch)
            else:
                feed = self.feed(name)
            feed.trim(now)
            start = resumed or position_of(spec.topics[name], feed)
            watched[name] = WatchedTopic(feed, start, selections[name])
        watch = WatchSession(
            f"wid_{secrets.token_urlsafe(16)}",
            watched,
            limits,
            heartbeat,
            size=size,
            now=self._registry.now,
            timetable=self._registry.timetable,
            unsent=self._unsent,
        )
        self._sessions.add(watch)
        return watch

    # ---- for the shells ------------------------------------------------------------------------

    def disconnect(self, reason: RpcError) -> None:
        """End every stream and every wait with `reason`."""
        self._sessions.end_streams(reason)
        for waiting in list(self._waiting):
            waiting.end(reason)

    def reset(self) -> None:
        """Remove every session. Feeds are removed together with their topics."""
        self._sessions.clear()


def _appended(feed: Feed, appended: Appended, *, deduped: bool = False) -> feeds.AppendResponse:
    return feeds.AppendResponse(
        first_seq=appended.first,
        last_seq=appended.last,
        head_seq=feed.head,
        count=appended.last - appended.first + 1,
        deduped=deduped,
    )


def _heartbeat_of(spec: feeds.WatchSpec) -> float:
    if not spec.HasField("heartbeat"):
        return DEFAULT_HEARTBEAT
    return min(max(seconds_of(spec.heartbeat), MIN_HEARTBEAT), MAX_HEARTBEAT)
