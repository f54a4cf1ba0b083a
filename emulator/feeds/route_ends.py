"""What a router needs of the two feeds that it joins."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
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


class Ends:
    """All feeds of an engine, for its routers.

    feed_of: gives the feed of a topic, making it one if need be; NotFound if there is no topic.
    """

    def __init__(self, engine: Engine, feed_of: Callable[[str], Feed]) -> None:
        self._engine = engine
        self._topics = engine.registry.topics
        self.source = feed_of
        # Those that were copied to. One whose topic is gone is replaced when it is asked for.
        self._dests: dict[str, Dest] = {}

    def check(self, source: str, dest: str, *, create: bool) -> None:
        """Refuse topics that cannot be ends; nothing is made.

        Raises:
            NotFound: there is no source; or no destination, and `create` says not to make it.
            FailedPrecondition: the destination has a schema, which a copy might not obey.
        """
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

    def dest(self, topic: str) -> Dest | None:
        """Makes the topic if there is none; None if it can take nothing now."""
        dest = self._dests.get(topic)
        if dest is None or dest.topic is not self._topics.get(topic):
            if topic not in self._topics:
                try:
                    self._engine.create_topic(pubsub.Topic(name=topic))
                except (InvalidArgument, ResourceExhausted):
                    return None
            dest = Dest(self._engine, self._topics[topic], self.source(topic))
            self._dests[topic] = dest
        # One that was given a schema since takes copies again when it has none.
        return None if _has_schema(dest.topic) else dest

    def forget(self, topic: str) -> None:
        """A topic is no router's destination any more."""
        self._dests.pop(topic, None)


class Dest:
    """A feed that is copied to."""

    def __init__(self, engine: Engine, topic: Topic, feed: Feed) -> None:
        self.topic = topic
        self._topics = engine.topics
        self._feed = feed

    def room_for(self, chosen: Chosen, now: Moment) -> int:
        """How many of some messages, from the first on, can be taken now."""
        feed, memory = self._feed, self._topics.room
        if memory == sys.maxsize and not feed.settings.rejects:
            return len(chosen)
        feed.trim(now)
        copies = chosen.stamped(len(chosen), feed.head + 1, self.topic.next_publish_ms(now.wall))
        sizes = [len(copy) for copy in copies]
        fitting = sum(1 for total in accumulate(sizes) if total <= memory)
        return min(fitting, feed.room_for(sizes))

    def take(self, chosen: Chosen, count: int, now: Moment) -> None:
        """Append copies of the first ones, for which there is room."""
        first_seq, publish_ms = self._feed.head + 1, self.topic.next_publish_ms(now.wall)
        copies = chosen.stamped(count, first_seq, publish_ms)
        records = [
            Record(seq, key, encoded, publish_ms)
            for seq, (key, encoded) in enumerate(zip(chosen.keys, copies, strict=False), first_seq)
        ]
        self._topics.append_records(self.topic, records, self._decoded(records), now)

    def lose(self, count: int) -> None:
        """So many messages that were to come are lost: readers get a gap, SOURCE_TRIM."""
        self._feed.lose(count)

    def _decoded(self, records: Sequence[Record]) -> Sequence[pubsub.PubsubMessage]:
        """The messages, if there is a filter that has to look at them."""
        subscriptions = self.topic.subscriptions.values()
        if all(subscription.terms.accepts is None for subscription in subscriptions):
            return ()
        return [record.message() for record in records]


def _has_schema(topic: Topic) -> bool:
    return topic.config.HasField("schema_settings")
