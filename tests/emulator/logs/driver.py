"""Feeds without a network: an engine, its feeds, and short names for frequent operations."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from pullstream_emulator.engine import Engine
from pullstream_emulator.logs import Feed, Feeds, WatchSession, WatchStream
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import encoded_pb2 as encoded
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.messages import pubsub_pb2 as pubsub

PROJECT = "projects/test"
TOPIC = f"{PROJECT}/topics/orders"


class Driver:
    """The feeds of one broker, on a clock that stands still. Epochs count from 1."""

    def __init__(self, **engine: Any) -> None:
        self.clock = ManualClock()
        self.engine = Engine(wall=self.clock.now, monotonic=self.clock.monotonic, **engine)
        self.feeds = Feeds(self.engine, new_epoch=itertools.count(1).__next__)

    def put(self, topic: str = TOPIC, *, ttl_ms: int = 0, **config: Any) -> feeds.Feed:
        settings = feeds.FeedConfig(**config)
        settings.ttl.FromMilliseconds(ttl_ms)
        return self.feeds.put_feed(feeds.PutFeedRequest(topic=topic, config=settings))

    def append(self, *data: str, topic: str = TOPIC, key: str = "", **attributes: str) -> list[int]:
        """Append records and return their numbers."""
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

    def watch(self, *topics: str, after: int = 0, token: str = "", **spec: Any) -> WatchSession:
        request = feeds.WatchSpec(**spec)
        for topic in topics or (TOPIC,):
            request.topics[topic].after_seq = after
        return self.feeds.create(request, token)


class Reader:
    """A stream of a watch. `wakes` counts its wake-ups."""

    def __init__(self, watch: WatchSession) -> None:
        self.wakes = 0
        self.watch = watch
        self.stream: WatchStream = watch.attach(self._wake)

    def _wake(self) -> None:
        self.wakes += 1

    def next(self) -> feeds.Frame | None:
        frame = self.stream.next_frame()
        return None if frame is None else decoded(frame)

    def take(self) -> list[feeds.Frame]:
        """Return every available frame."""
        return list(iter(self.next, None))


def decoded(frame: encoded.EncodedFrame) -> feeds.Frame:
    return feeds.Frame.FromString(frame.SerializeToString())


def kinds(frames: Sequence[feeds.Frame]) -> list[str | None]:
    return [frame.WhichOneof("kind") for frame in frames]


def seqs(messages: Sequence[pubsub.PubsubMessage]) -> list[int]:
    return [int(message.message_id) for message in messages]
