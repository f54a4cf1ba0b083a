"""Feeds as the ends of routers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from emulator.engine import Engine, Record
from emulator.engine.moment import Moment
from emulator.engine.topic import Topic
from emulator.refusals import missing
from protocol import names
from protocol.errors import FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted
from protocol.messages import pubsub_pb2 as pubsub

from .copying import Chosen
from .feed import Feed


class FeedEnds:
    """All feeds of an engine, for its routers.

    feed_of: gives the feed of a topic, making it one if need be; NotFound if there is no topic.
    """

    def __init__(self, engine: Engine, feed_of: Callable[[str], Feed]) -> None:
        self._engine = engine
        self._topics = engine.registry.topics
        self.source = feed_of
        # Those that were copied to. One whose topic is gone is replaced when it is asked for.
        self._dests: dict[str, FeedDest] = {}

    def check(self, source: str, dest: str, *, create: bool) -> None:
        if source not in self._topics:
            raise missing(source)
        known = self._topics.get(dest)
        if known is None:
            if not create:
                raise NotFound(f"There is no topic {dest}, and create_dest says not to make it.")
        elif _has_schema(known):
            raise FailedPrecondition(
                f"{names.short_id(dest)} has a schema, which copies might not obey: it cannot be "
                "the dest of a router.",
                reason="ROUTER_DEST_HAS_SCHEMA",
            )

    def dest(self, topic: str) -> FeedDest | None:
        dest = self._dests.get(topic)
        if dest is None or dest.topic is not self._topics.get(topic):
            if topic not in self._topics:
                try:
                    self._engine.create_topic(pubsub.Topic(name=topic))
                except (InvalidArgument, ResourceExhausted):
                    return None
            dest = FeedDest(self._engine, self._topics[topic], self.source(topic))
            self._dests[topic] = dest
        # One that was given a schema since takes copies again when it has none.
        return None if _has_schema(dest.topic) else dest

    def forget(self, topic: str) -> None:
        self._dests.pop(topic, None)


class FeedDest:
    """See route_ends.Dest."""

    def __init__(self, engine: Engine, topic: Topic, feed: Feed) -> None:
        self.topic = topic
        self._topics = engine.topics
        self._feed = feed

    def room_for(self, chosen: Chosen, now: Moment) -> int:
        feed, memory = self._feed, self._topics.room
        if memory == sys.maxsize and not feed.settings.rejects:
            return len(chosen)
        feed.trim(now)
        copies = chosen.stamped(len(chosen), feed.head + 1, self.topic.next_publish_ms(now.wall))
        sizes = [len(copy) for copy in copies]
        fitting = sum(1 for total in accumulate(sizes) if total <= memory)
        return min(fitting, feed.room_for(sizes))

    def take(self, chosen: Chosen, count: int, now: Moment) -> None:
        first_seq, publish_ms = self._feed.head + 1, self.topic.next_publish_ms(now.wall)
        copies = chosen.stamped(count, first_seq, publish_ms)
        records = [
            Record(seq, key, encoded, publish_ms)
            for seq, (key, encoded) in enumerate(zip(chosen.keys, copies, strict=False), first_seq)
        ]
        self._topics.append_records(self.topic, records, _decoded(records), now)

    def lose(self, count: int) -> None:
        self._feed.lose(count)


def _decoded(records: Sequence[Record]) -> Iterator[pubsub.PubsubMessage]:
    return (record.message() for record in records)


def _has_schema(topic: Topic) -> bool:
    return topic.config.HasField("schema_settings")
