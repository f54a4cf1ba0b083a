"""The present state of topics, subscriptions, feeds, routers and cursors."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from operator import itemgetter
from typing import TypeVar

from pullstream_emulator.engine import Engine
from pullstream_emulator.engine.delivery.subscription import Subscription
from pullstream_emulator.logs.cursors import Cursors
from pullstream_emulator.logs.feed import Feed
from pullstream_emulator.logs.routers import Routers
from pullstream_emulator.schemas import SchemaRegistry
from pullstream_protocol import names
from pullstream_protocol.messages import schema_pb2 as pb

from .counters import Counters, SubscriptionCounts, TopicCounts


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """A topic.

    Attributes:
        name: Its full name.
        subscriptions: The full names of its subscriptions.
        counts: A copy of its counters.
    """

    name: str
    subscriptions: tuple[str, ...]
    counts: TopicCounts


@dataclass(frozen=True, slots=True)
class SubscriptionStatus:
    """A subscription.

    Attributes:
        name: Its full name.
        topic: The full name of its topic; `_deleted-topic_` if the topic was deleted.
        dead_letter_topic: The full name of its dead-letter topic; empty if it has none.
        push_endpoint: The URL to which its messages are pushed; empty if they are pulled.
        backlog: Messages that are not finally acknowledged.
        leased: Messages with a lease, a part of the backlog.
        delayed: Messages and ordering keys that wait for a retry delay.
        oldest_unacked_at: Publish time of the oldest message in the backlog, in seconds since the
            epoch; None without a message.
        oldest_unacked_seconds: Its age; 0 without a message.
        streams: Open streaming pulls.
        waiting_pulls: Pull calls that wait for a message.
        counts: A copy of its counters.
    """

    name: str
    topic: str
    dead_letter_topic: str
    push_endpoint: str
    backlog: int
    leased: int
    delayed: int
    oldest_unacked_at: float | None
    oldest_unacked_seconds: float
    streams: int
    waiting_pulls: int
    counts: SubscriptionCounts


@dataclass(frozen=True, slots=True)
class FeedStatus:
    """A topic that is read as a feed.

    Attributes:
        topic: The full name of the topic.
        head_seq: The newest sequence number.
        earliest_seq: The oldest sequence number in the window.
        count: Records in the window.
        bytes: Their size.
        watchers: Open streams of watches.
        missing: First and last number of runs without a record; the newest MAX_MISSING of them.
    """

    topic: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    watchers: int
    missing: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class RouterStatus:
    """A router.

    Attributes:
        name: Its full name.
        source: The full name of the topic from which it copies.
        dest: The full name of the topic to which it copies.
        filter: Its filter; empty for all messages.
        phase: "idle", "ready" (there may be something to copy), or "waiting" for room.
        position: The last number of the source that is finished.
        behind: Numbers of the source that are not finished.
        forwarded: Messages copied.
    """

    name: str
    source: str
    dest: str
    filter: str
    phase: str
    position: int
    behind: int
    forwarded: int


@dataclass(frozen=True, slots=True)
class CursorStatus:
    """A cursor.

    Attributes:
        name: Its full name.
        topic: The full name of its topic.
        seq: Its position.
        behind: Numbers of the topic after the position.
    """

    name: str
    topic: str
    seq: int
    behind: int


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """A schema.

    Attributes:
        name: Its full name.
        type: "AVRO" or "PROTOCOL_BUFFER".
        revisions: Number of its revisions.
    """

    name: str
    type: str
    revisions: int


R = TypeVar("R")

# Most runs of missing numbers that the status of a feed lists.
MAX_MISSING = 20

# Whether a caller may see the resources of a project.
MaySee = Callable[[str], bool]


def topic_status(
    engine: Engine, counters: Counters, may_see: MaySee = lambda project: True
) -> Iterator[TopicStatus]:
    """Yield the state of each topic, by name."""
    for name, topic in _visible(engine.registry.topics.items(), may_see):
        counts = counters.topics.get(name)
        yield TopicStatus(
            name,
            tuple(sorted(topic.subscriptions)),
            replace(counts) if counts else TopicCounts(),
        )


def subscription_status(
    engine: Engine, counters: Counters, may_see: MaySee = lambda project: True
) -> Iterator[SubscriptionStatus]:
    """Yield the state of each subscription, by name."""
    now = engine.registry.now().wall
    for name, subscription in _visible(engine.registry.subscriptions.items(), may_see):
        counts = counters.subscriptions.get(name)
        yield _status(subscription, replace(counts) if counts else SubscriptionCounts(), now)


def feed_status(engine: Engine) -> Iterator[FeedStatus]:
    """Yield the state of each feed, by the name of its topic."""
    for name, topic in sorted(engine.registry.topics.items(), key=itemgetter(0)):
        feed = topic.feed
        if isinstance(feed, Feed):
            yield FeedStatus(
                topic=name,
                head_seq=feed.head,
                earliest_seq=feed.earliest,
                count=feed.count,
                bytes=feed.bytes,
                watchers=feed.watchers,
                missing=tuple(deque(feed.missing(), MAX_MISSING)),
            )


def router_status(engine: Engine, routers: Routers) -> Iterator[RouterStatus]:
    """Yield the state of each router, by name."""
    for name, router in sorted(routers.all(), key=itemgetter(0)):
        config = router.config
        yield RouterStatus(
            name=name,
            source=config.source,
            dest=config.dest,
            filter=config.filter,
            phase=router.phase.value,
            position=router.position,
            behind=_behind(engine, config.source, router.position),
            forwarded=router.forwarded,
        )


def cursor_status(engine: Engine, cursors: Cursors) -> Iterator[CursorStatus]:
    """Yield the state of each cursor, by name."""
    for name, cursor in sorted(cursors.all(), key=itemgetter(0)):
        behind = _behind(engine, cursor.topic, cursor.seq)
        yield CursorStatus(name, cursor.topic, cursor.seq, behind)


def schema_status(schemas: SchemaRegistry) -> Iterator[SchemaStatus]:
    """Yield the state of each schema, by name."""
    for name, history in sorted(schemas.all(), key=itemgetter(0)):
        kind = pb.Schema.Type.Name(history.head.schema.type)
        yield SchemaStatus(name, kind, len(history.revisions))


def _behind(engine: Engine, topic: str, position: int) -> int:
    """Return how many numbers of a topic follow a position."""
    found = engine.registry.topics.get(topic)
    return 0 if found is None else max(found.log.head_seq - position, 0)


def _visible(resources: Iterable[tuple[str, R]], may_see: MaySee) -> Iterator[tuple[str, R]]:
    seen = cache(may_see)
    for name, resource in sorted(resources, key=itemgetter(0)):
        if seen(names.project_of(name)):
            yield name, resource


def _status(
    subscription: Subscription, counts: SubscriptionCounts, now: float
) -> SubscriptionStatus:
    messages, config = subscription.messages, subscription.config
    oldest_ms = messages.oldest_ms
    oldest_at = None if oldest_ms is None else oldest_ms / 1000
    return SubscriptionStatus(
        name=subscription.name,
        topic=config.topic,
        dead_letter_topic=subscription.policy.dead_letter_topic,
        push_endpoint=config.push_config.push_endpoint,
        backlog=len(messages),
        leased=len(subscription.leases),
        delayed=messages.delayed,
        oldest_unacked_at=oldest_at,
        oldest_unacked_seconds=0.0 if oldest_at is None else max(now - oldest_at, 0.0),
        streams=subscription.consumers.streams,
        waiting_pulls=subscription.consumers.waiting_pulls,
        counts=counts,
    )
