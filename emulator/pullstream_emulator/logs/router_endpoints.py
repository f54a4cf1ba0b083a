"""The two feeds that a router connects, as far as the router uses them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import accumulate

from pullstream_emulator.engine import Engine, Record
from pullstream_emulator.engine.now import Now
from pullstream_emulator.engine.resources.topic import Topic
from pullstream_emulator.error_texts import missing
from pullstream_protocol import names
from pullstream_protocol.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
)
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .feed import Feed
from .record_copies import ChosenRecords


class RouterEndpoints:
    """All feeds of an engine, for its routers.

    Args:
        engine: The engine that owns the topics.
        feed_of: Returns the feed of a topic, and creates it if necessary; raises NotFound if the
            topic does not exist.
    """

    def __init__(self, engine: Engine, feed_of: Callable[[str], Feed]) -> None:
        self._engine = engine
        self._topics = engine.registry.topics
        self.source = feed_of
        # Known destinations. An entry whose topic was deleted is replaced on its next use.
        self._dests: dict[str, RouterDestination] = {}

    def check(self, source: str, dest: str, *, create: bool) -> None:
        """Refuse topics that a router cannot connect; creates nothing.

        Args:
            source: Topic to copy from.
            dest: Topic to copy to.
            create: The destination may be created.

        Raises:
            NotFound: The source does not exist; or the destination does not exist and `create` is
                false.
            FailedPrecondition: The destination has a schema, which copies might not match.
        """
        if source not in self._topics:
            raise missing(source)
        known = self._topics.get(dest)
        if known is None:
            if not create:
                raise NotFound(f"There is no topic {dest}, and create_dest is false.")
        elif _has_schema(known):
            raise FailedPrecondition(
                f"{names.short_id(dest)} has a schema, which copies might not match: it cannot be "
                "the dest of a router.",
                reason="ROUTER_DEST_HAS_SCHEMA",
            )

    def dest(self, topic: str) -> RouterDestination | None:
        """Return a destination, with its topic created if necessary; None if it is unavailable."""
        dest = self._dests.get(topic)
        if dest is None or dest.topic is not self._topics.get(topic):
            if topic not in self._topics:
                try:
                    self._engine.create_topic(pubsub.Topic(name=topic))
                except (InvalidArgument, ResourceExhausted):
                    return None
            dest = RouterDestination(self._engine, self._topics[topic], self.source(topic))
            self._dests[topic] = dest
        # A destination that was given a schema later takes copies again when the schema is removed.
        return None if _has_schema(dest.topic) else dest

    def forget(self, topic: str) -> None:
        """Drop a topic that is no longer the destination of a router."""
        self._dests.pop(topic, None)


class RouterDestination:
    """A feed that a router copies to.

    Args:
        engine: The engine that owns the topic.
        topic: The topic.
        feed: Its feed.
    """

    def __init__(self, engine: Engine, topic: Topic, feed: Feed) -> None:
        self.topic = topic
        self._topics = engine.topics
        self._feed = feed

    def room_for(self, chosen: ChosenRecords, now: Now) -> int:
        """Return how many of the chosen messages, counted from the first, fit now."""
        feed, memory = self._feed, self._topics.room
        if memory == sys.maxsize and not feed.settings.rejects:
            return len(chosen)
        feed.trim(now)
        copies = chosen.stamped(len(chosen), feed.head + 1, self.topic.next_publish_ms(now.wall))
        sizes = [len(copy) for copy in copies]
        fitting = sum(1 for total in accumulate(sizes) if total <= memory)
        return min(fitting, feed.room_for(sizes))

    def take(self, chosen: ChosenRecords, count: int, now: Now) -> None:
        """Append copies of the first messages, which must fit.

        Args:
            chosen: The messages.
            count: Number of messages to append.
            now: The present time.
        """
        first_seq, publish_ms = self._feed.head + 1, self.topic.next_publish_ms(now.wall)
        copies = chosen.stamped(count, first_seq, publish_ms)
        records = [
            Record(seq, key, encoded, publish_ms)
            for seq, (key, encoded) in enumerate(zip(chosen.keys, copies, strict=False), first_seq)
        ]
        self._topics.append_records(self.topic, records, self._decoded(records), now)

    def lose(self, count: int) -> None:
        """Note that `count` messages are lost: readers get a gap with reason SOURCE_TRIM."""
        self._feed.lose(count)

    def _decoded(self, records: Sequence[Record]) -> Sequence[pubsub.PubsubMessage]:
        """Return the decoded messages if a subscription's filter needs them, else nothing."""
        subscriptions = self.topic.subscriptions.values()
        if all(subscription.policy.accepts is None for subscription in subscriptions):
            return ()
        return [record.message() for record in records]


def _has_schema(topic: Topic) -> bool:
    return topic.config.HasField("schema_settings")
