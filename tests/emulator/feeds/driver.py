"""Feeds without a wire: an engine, its feeds, and short names for what tests ask of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from emulator.engine import Engine
from emulator.feeds import Feed, Feeds, Stream, Watch
from protocol.clock import ManualClock
from protocol.messages import encoded_pb2 as encoded
from protocol.messages import feeds_pb2 as feeds
from protocol.messages import pubsub_pb2 as pubsub

PROJECT = "projects/test"
TOPIC = f"{PROJECT}/topics/orders"


class Driver:
    """One broker's feeds on a clock that stands still; epochs count from 1."""

    def __init__(self, **engine: Any) -> None:
        self.clock = ManualClock()
        self.engine = Engine(wall=self.clock.now, monotonic=self.clock.monotonic, **engine)
        self.feeds = Feeds(self.engine, new_epoch=itertools.count(1).__next__)

    def put(self, topic: str = TOPIC, *, ttl_ms: int = 0, **config: Any) -> feeds.Feed:
        settings = feeds.FeedConfig(**config)
        settings.ttl.FromMilliseconds(ttl_ms)
        return self.feeds.put_feed(feeds.PutFeedRequest(topic=topic, config=settings))

    def append(self, *data: str, topic: str = TOPIC, key: str = "", **attributes: str) -> list[int]:
        """The numbers that the records were given."""
        messages = [pubsub.PubsubMessage(data=d.encode(), attributes=attributes) for d in data]
        request = feeds.AppendRequest(topic=topic, messages=messages, idempotency_key=key)
        appended = self.feeds.append(request)
        return list(range(appended.first_seq, appended.last_seq + 1))

    def delete(self, before: int = 0, filter_text: str = "") -> int:
        request = feeds.DeleteMessagesRequest(topic=TOPIC, before_seq=before, filter=filter_text)
        return self.feeds.delete_messages(request).deleted

    def read(self, after: int = 0, **fields: Any) -> feeds.ReadResponse:
        start = feeds.Position(
            after_seq=after, epoch=fields.pop("epoch", 0), filter=fields.pop("filter", "")
        )
        request = feeds.ReadRequest(topic=TOPIC, start=start, **fields)
        return feeds.ReadResponse.FromString(self.feeds.read(request).SerializeToString())

    def state(self, topic: str = TOPIC) -> feeds.Feed:
        return self.feeds.get_feed(feeds.GetFeedRequest(topic=topic))

    def feed(self, topic: str = TOPIC) -> Feed:
        return self.feeds.feed(topic)

    def delete_topic(self, topic: str = TOPIC) -> None:
        self.engine.delete_topic(topic)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.engine.advance()

    def watch(self, *topics: str, after: int = 0, token: str = "", **spec: Any) -> Watch:
        request = feeds.WatchSpec(**spec)
        for topic in topics or (TOPIC,):
            request.topics[topic].after_seq = after
        return self.feeds.create(request, token)


class Reader:
    """A stream of a watch; `wakes` counts how often it was woken."""

    def __init__(self, watch: Watch) -> None:
        self.wakes = 0
        self.watch = watch
        self.stream: Stream = watch.attach(self._wake)

    def _wake(self) -> None:
        self.wakes += 1

    def next(self) -> feeds.Frame | None:
        frame = self.stream.next_frame()
        return None if frame is None else decoded(frame)

    def take(self) -> list[feeds.Frame]:
        """Every frame that there is now."""
        return list(iter(self.next, None))


def decoded(frame: encoded.EncodedFrame) -> feeds.Frame:
    return feeds.Frame.FromString(frame.SerializeToString())


def kinds(frames: Sequence[feeds.Frame]) -> list[str | None]:
    return [frame.WhichOneof("kind") for frame in frames]


def seqs(messages: Sequence[pubsub.PubsubMessage]) -> list[int]:
    return [int(message.message_id) for message in messages]
