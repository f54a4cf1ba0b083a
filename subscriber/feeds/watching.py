"""`client.watch`: many feeds over one stream."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import grpc

from protocol.messages import feeds_pb2 as feeds
from subscriber.background import BackgroundClient
from subscriber.request import make_message
from subscriber.streaming.callbacks import is_coroutine_function

from .client import FeedsClient
from .position import Start, position_of
from .watch import FrameHandler, Watch, WatchFuture, frame_calls
from .watch_session import WatchSession

MAX_TOPICS: Final = 256
_LEAST_HEARTBEAT, _LONGEST_HEARTBEAT = 1.0, 60.0

# What gRPC may take in of a stream whose reader is slow. Less would slow down a fast one that is
# far away from its server.
_WINDOW_BYTES = 64 * 1024


class WatchingClient(FeedsClient, BackgroundClient):
    """Reads feeds, call by call or over a stream."""

    _watch_channel: grpc.Channel | None = None

    def watch(
        self,
        topics: Mapping[str, Start],
        on_frame: FrameHandler,
        *,
        exclude_node: str = "",
        include_data: bool = True,
        max_messages: int = 256,
        max_bytes: int = 256 * 1024,
        heartbeat: float = 15.0,
        resume_token: str = "",
    ) -> WatchFuture:
        """Read feeds in the background, as they grow: `on_frame(frame)` runs for each frame.

        Frames come one at a time, on one thread, those of a topic in order: `Records`, a `Gap`
        before the records behind it, `CaughtUp` when there is no more for now, `TopicDeleted`; and
        `Opened` when the stream is. A stream that breaks, or falls silent for twice the time of the
        heartbeat, is opened again and goes on behind the last frame that was handled. A slow
        handler slows down nobody else: what it misses by that it is told as a gap.

        Args:
            topics: full names, `projects/P/topics/T`, each with where to begin: "tail" for what is
                appended from now on, the number of the last message that the reader has (0 for
                none), a Position or a Cursor. A Position may have a filter. 256 topics at most.
            on_frame: if it raises, the watch ends with that error, as to go on would be to lose the
                frame.
            exclude_node: leave out the records of this node.
            include_data: False for messages without data, and of their attributes tag and node
                only.
            max_messages: in a frame, at most 1000.
            max_bytes: of messages in a frame, at most 8 MiB. One message comes whatever its size.
            heartbeat: seconds after which the server says that it is still there, 1 to 60.
            resume_token: of an earlier watch (`WatchFuture.resume_token`); for the topics that it
                knows it says where to begin.

        Returns:
            A future that ends when the watch does; `close()` or `cancel()` ends it. NotFound, when
            there is no such topic, and other errors are raised by its `result()`.

        Raises:
            TypeError, ValueError: an argument is of the wrong kind, or out of its range.
            SubscriberClosed: this client is closed.
            ForkedProcess: this client was made before a fork, in the parent.
        """
        if not callable(on_frame) or is_coroutine_function(on_frame):
            raise TypeError(
                f"on_frame is {on_frame!r}; it must be a plain function of one frame "
                "(AsyncSubscriberClient.watch is for coroutines)"
            )
        if not isinstance(topics, Mapping):
            raise TypeError(f"topics is {topics!r:.80}; it must map topics to where they begin")
        if not 1 <= len(topics) <= MAX_TOPICS:
            raise ValueError(f"there are {len(topics)} topics; a watch has 1 to {MAX_TOPICS}")
        if not _LEAST_HEARTBEAT <= heartbeat <= _LONGEST_HEARTBEAT:
            raise ValueError(f"heartbeat is {heartbeat}; it must be between 1 and 60 seconds")
        fields = {
            "topics": {topic: position_of(start, topic) for topic, start in topics.items()},
            "exclude_node": exclude_node,
            "max_messages": max_messages,
            "max_bytes": max_bytes,
            "include_data": include_data,
            "heartbeat": timedelta(seconds=heartbeat),
        }
        session = WatchSession(make_message(feeds.WatchSpec, fields), resume_token)

        def start() -> WatchFuture:
            begin = frame_calls(self._channel_for_watches())
            watch = Watch(begin, session, on_frame, heartbeat=heartbeat)
            watch.start()
            return watch.future

        return self._keep(start)

    def _channel_for_watches(self) -> grpc.Channel:
        """A connection of their own, if the caller has not given us his: what a slow reader leaves
        unread stays small there, and is in nobody else's way. Under the lock."""
        if self._watch_channel is None:
            self._watch_channel = self._connections.open(_WINDOW_BYTES)
        return self._watch_channel
