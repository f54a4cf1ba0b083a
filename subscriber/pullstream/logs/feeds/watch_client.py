"""Client method `watch`: reads many feeds over one stream."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from pullstream.rpc.background_client import BackgroundClient
from pullstream.rpc.channel_pool import StreamChannel
from pullstream.rpc.request import make_message
from pullstream.runtime.callback_kinds import require_handler
from pullstream.runtime.validation import require_text
from pullstream_protocol.messages import feeds_pb2 as feeds

from .position import Start, position_of
from .resumable_watch import ResumableWatch
from .watch_reader import FrameCall, FrameHandler, WatchFuture, WatchReader, frame_calls

MAX_TOPICS: Final = 256
_LEAST_HEARTBEAT, _LONGEST_HEARTBEAT = 1.0, 60.0

# The bytes of a stream that gRPC may receive ahead of a slow reader. A smaller window would slow a
# fast reader that is far away from the server.
_WINDOW_BYTES = 64 * 1024


class WatchingClient(BackgroundClient):
    """Reads feeds over a stream."""

    _watch_channel: StreamChannel | None = None

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
        """Read growing feeds in the background: `on_frame(frame)` is called for each frame.

        The handler runs on one thread, for one frame at a time. The frames of a topic are in order:
        `Records`; a `Gap` before the records that follow the gap; `CaughtUp` when there is no more
        for now; `TopicDeleted`. An `Opened` frame comes whenever a stream is open. If the stream
        breaks, or is silent for twice the heartbeat, it is opened again and continues after the
        last handled frame. A slow handler does not slow down other readers. If the feed discards
        records before the handler gets to them, it receives a gap.

        Args:
            topics: The start position of each topic, by the topic's full name
                (`projects/P/topics/T`). A start position is "tail" for records that are appended
                from now on, the sequence number of the last message that the reader has (0 for
                none), a Position or a Cursor. A Position may have a filter. At most 256 topics.
            on_frame: The handler. If it raises an error, the watch ends with that error, because
                continuing would lose the frame.
            exclude_node: Leave out the records of this node.
            include_data: False delivers messages without data, and of their attributes only `tag`
                and `node`.
            max_messages: The most messages in a frame, at most 1000.
            max_bytes: The most bytes of messages in a frame, at most 8 MiB. A larger message comes
                alone.
            heartbeat: The server sends a heartbeat after this many seconds of silence, 1 to 60.
            resume_token: The token of an earlier watch (`WatchFuture.resume_token`). It gives the
                start positions of the topics that it contains.

        Returns:
            A future that ends when the watch ends; `close()` or `cancel()` ends the watch. Its
            `result()` raises NotFound if a topic does not exist, and other errors of the watch.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
            SubscriberClosed: The client is closed.
            ForkedProcess: The client was created in the parent process, before a fork.
        """
        form = "that takes one frame (for coroutines, use AsyncSubscriberClient.watch)"
        require_handler("on_frame", on_frame, form)
        if not isinstance(topics, Mapping):
            raise TypeError(f"topics is {topics!r:.80}; it must map topics to start positions")
        if not 1 <= len(topics) <= MAX_TOPICS:
            raise ValueError(
                f"topics has {len(topics)} entries; a watch must have 1 to {MAX_TOPICS} topics"
            )
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
        require_text("resume_token", resume_token)
        session = ResumableWatch(make_message(feeds.WatchSpec, fields), resume_token)

        def start() -> WatchFuture:
            calls = _WatchCalls(self._channel_for_watches())
            watch = WatchReader(
                calls.begin, session, on_frame, heartbeat=heartbeat, reconnect=calls.reconnect
            )
            watch.start()
            return watch.future

        return self._keep(start)

    def _channel_for_watches(self) -> StreamChannel:
        """Return the channel for watches; called with the lock held.

        Watches have a separate connection, unless the caller passed a channel. On it, the unread
        data of a slow reader stays small and does not block other calls.
        """
        if self._watch_channel is None:
            self._watch_channel = StreamChannel(self._connections, _WINDOW_BYTES)
        return self._watch_channel


class _WatchCalls:
    """The calls of one watch, for its reader.

    Args:
        connection: The channel of all watches.
    """

    def __init__(self, connection: StreamChannel) -> None:
        self._connection = connection
        self._channel = connection.get()

    def begin(self, request: feeds.WatchRequest) -> FrameCall:
        self._channel = self._connection.get()
        return frame_calls(self._channel)(request)

    def reconnect(self) -> None:
        self._connection.replace(self._channel)
