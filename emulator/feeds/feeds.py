"""All feeds of a broker: what can be asked of them, one method for each request."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from copy import deepcopy
from itertools import takewhile

from emulator.engine import Engine
from emulator.engine.durations import seconds_of
from emulator.engine.registry import page_of_project
from emulator.refusals import invalid_argument, too_large, too_small
from emulator.storage.durability import LABEL, Durability
from protocol import names
from protocol.errors import NotFound, RpcError
from protocol.messages import encoded_pb2 as encoded
from protocol.messages import feeds_pb2 as feeds
from protocol.messages import pubsub_pb2 as pubsub

from . import resume_token
from .appending import check_append
from .book import FeedBook, random_epoch
from .feed import Feed
from .idempotency import Appended
from .listeners import Wake
from .observer import FeedObserver
from .place import check_position, place_of
from .reading import Reading
from .selection import Limits, Selection, filter_of
from .sessions import Sessions
from .settings import DEFAULTS, DURABILITIES, Settings
from .waiting import Waiting
from .watch import Watch
from .watched import Watched

MAX_WATCHED = 256

DEFAULT_HEARTBEAT = 15.0
MIN_HEARTBEAT = 1.0
MAX_HEARTBEAT = 60.0


class Feeds:
    """The topics of an engine as feeds, and who watches them. Same owner as the engine.

    A topic becomes a feed when somebody first has to do with it as one. Every method that takes a
    request checks it whole before it changes anything, and raises an error of protocol.errors
    otherwise.

    Args:
        engine: whose topics they are.
        default_durability: the class of topics that name none.
        observer: told of every change of a feed.
        new_epoch: numbers for the lives of topics, no two alike.
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
        self.book = FeedBook(
            engine,
            default_durability=default_durability,
            observer=observer or FeedObserver(),
            new_epoch=new_epoch,
        )
        self.feed = self.book.feed
        self._sessions = Sessions(engine.registry.now, engine.registry.timetable)
        self._waiting: dict[Waiting, None] = {}

    # ---- settings ------------------------------------------------------------------------------

    def put_feed(self, request: feeds.PutFeedRequest) -> feeds.Feed:
        """Make a feed, and its topic if there is none, or give it other settings."""
        name = names.validate("topics", request.topic)
        settings = Settings.of(request.config)
        if name not in self._registry.topics:
            self._topics.create(pubsub.Topic(name=name))
        self._set_durability(name, request.config.durability)
        topic = self._registry.topic(name)
        created = topic.feed is None
        feed = self.book.of(topic, settings)
        if feed.settings != settings:
            feed.configure(settings)
        return self.book.state(feed, created=created)

    def get_feed(self, request: feeds.GetFeedRequest) -> feeds.Feed:
        """Raises NotFound for a topic that nobody has used as a feed."""
        topic = self._registry.topic(request.topic)
        if not isinstance(topic.feed, Feed):
            raise NotFound(
                f"The topic {request.topic} is not a feed yet: it becomes one when it is put, "
                "read, watched, routed or appended to."
            )
        return self.book.state(topic.feed)

    def list_feeds(self, request: feeds.ListFeedsRequest) -> feeds.ListFeedsResponse:
        known = {
            name: topic.feed
            for name, topic in self._registry.topics.items()
            if isinstance(topic.feed, Feed)
        }
        listed, token = page_of_project("topics", known, request)
        return feeds.ListFeedsResponse(
            feeds=[self.book.state(feed) for feed in listed], next_page_token=token
        )

    def _set_durability(self, name: str, named: feeds.Durability) -> None:
        """A topic's class is a label, as every client can set it."""
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

    def append(self, request: feeds.AppendRequest) -> feeds.AppendResponse:
        """Append all messages or none."""
        name = names.validate("topics", request.topic)
        check_append(request)
        if name in self._registry.topics:
            return self._append(name, request)
        if request.HasField("create") and not request.create:
            raise NotFound(f"There is no topic {name}, and the request says not to make it.")
        # Nothing else can refuse it: a topic that was made in vain would have to be deleted, and
        # with it the routers that wait for one of this name.
        self._topics.check_room(request.ByteSize())
        self._topics.create(pubsub.Topic(name=name))
        appended = self._append(name, request)
        appended.created = True
        return appended

    def _append(self, name: str, request: feeds.AppendRequest) -> feeds.AppendResponse:
        topic = self._registry.topic(name)
        feed = self.book.of(topic, DEFAULTS)
        key, now = request.idempotency_key, self._registry.now()
        if key:
            earlier = feed.keys.find(key, now.monotonic)
            if earlier is not None:
                return _appended(feed, earlier, deduped=True)
            feed.keys.check_room()
        first = feed.head + 1
        self._topics.append_checked(topic, request.messages, request.ByteSize())
        appended = Appended(first, feed.head)
        if key:
            feed.keys.remember(key, appended, now.monotonic)
            self._registry.timetable.watch(feed.keys, now)
        return _appended(feed, appended)

    def delete_messages(self, request: feeds.DeleteMessagesRequest) -> feeds.DeleteMessagesResponse:
        """Take messages out of a feed's window for good, without a word to its readers."""
        if request.before_seq < 0:
            raise too_small("before_seq", request.before_seq, 0)
        if not request.before_seq and not request.filter:
            raise invalid_argument("one of before_seq and filter must be set")
        accepts = filter_of(request.filter)
        feed = self.feed(request.topic)
        # What was too old before is none of this: readers are told of it.
        feed.trim(self._registry.now())
        end = request.before_seq or feed.head + 1
        seqs = [
            record.seq
            for record in takewhile(lambda record: record.seq < end, feed.records())
            if accepts is None or accepts(record.message().attributes)
        ]
        return feeds.DeleteMessagesResponse(deleted=feed.delete(seqs))

    # ---- reading -------------------------------------------------------------------------------

    def read(self, request: feeds.ReadRequest) -> encoded.EncodedReadResponse:
        """What there is now; to wait for more is the caller's: see `wait_for`."""
        reading = Reading(request)
        feed = self.feed(request.topic)
        feed.trim(self._registry.now())
        return reading.of(feed)

    def wait_for(self, topic: str, wake: Wake) -> Waiting:
        """Call `wake` once when the topic has grown or gone, or when the broker stops.

        It must only make a note of it: the engine is in the middle of its work.
        """
        waiting = Waiting(self.feed(topic), wake, lambda over: self._waiting.pop(over, None))
        self._waiting[waiting] = None
        return waiting

    # ---- watching ------------------------------------------------------------------------------

    def create(self, spec: feeds.WatchSpec, token: str = "") -> Watch:
        """Begin a session. What `token` says of a topic goes before what `spec` says.

        A topic that the token knows and that is gone ends in the session, as it would have if its
        reader had been there.

        Raises:
            NotFound: one of the other topics does not exist.
        """
        places = resume_token.decode(token)
        if not spec.topics:
            raise too_small("topics", 0, 1)
        if len(spec.topics) > MAX_WATCHED:
            raise too_large("topics", len(spec.topics), MAX_WATCHED)
        limits = Limits.of(spec.max_messages, spec.max_bytes)
        heartbeat = _heartbeat_of(spec)
        include_data = not spec.HasField("include_data") or spec.include_data
        selections = {
            name: Selection(position.filter, spec.exclude_node, include_data=include_data)
            for name, position in spec.topics.items()
        }
        for name, position in spec.topics.items():
            check_position(position)
            if name not in places:
                self._registry.topic(name)
        self._sessions.check_room()
        now = self._registry.now()
        watched = {}
        for name in sorted(spec.topics):
            place = places.get(name)
            if place is not None and name not in self._registry.topics:
                feed = self.book.gone(name, place.epoch)
            else:
                feed = self.feed(name)
            feed.trim(now)
            place = place or place_of(spec.topics[name], feed)
            watched[name] = Watched(feed, place, selections[name])
        watch = Watch(
            f"wid_{secrets.token_urlsafe(16)}",
            watched,
            limits,
            heartbeat,
            now=self._registry.now,
            timetable=self._registry.timetable,
        )
        self._sessions.add(watch)
        return watch

    def find(self, watch_id: str) -> Watch:
        """The session of this id; raises NotFound if it is unknown or over."""
        return self._sessions.find(watch_id)

    def end(self, watch_id: str) -> None:
        """End a session, and its stream; raises NotFound if it is unknown or over."""
        self._sessions.remove(watch_id)

    # ---- for the shells ------------------------------------------------------------------------

    def disconnect(self, reason: RpcError) -> None:
        """Tell every stream and every wait to end with `reason`."""
        self._sessions.end_streams(reason)
        for waiting in list(self._waiting):
            waiting.end(reason)

    def reset(self) -> None:
        """Forget every session. The feeds go with their topics."""
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
