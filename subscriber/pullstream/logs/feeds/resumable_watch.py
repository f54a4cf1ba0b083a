"""Session rules of a watch: its positions, and how it continues after its stream breaks.

Pure logic: no threads, no gRPC, no sleeping.
"""

from __future__ import annotations

from pullstream.runtime.retry_clock import Backoff
from pullstream.streaming.stream import TERMINAL_CODES
from pullstream_protocol.errors import NotFound, RpcError
from pullstream_protocol.messages import feeds_pb2 as feeds

from .frames import Frame, TopicDeleted, frame_of

# The pause before a stream is opened again, in seconds. The broker asks readers for the first
# value. The pause grows with repeated failures, but stays far below a session's lifetime of 300 s.
_FIRST_PAUSE = 2.0
_LAST_PAUSE = 30.0


class ResumableWatch:
    """A watch that continues after a break: the request, and the handled frames. Not thread-safe.

    `request()` opens a stream. Each frame of the stream goes to `received`, and to `handled` when
    its handler has returned. The end of the stream goes to `broken`. After a break the broker
    continues after the last handled frame, so that no frame is lost or repeated:

    - The broker keeps the session (`watch_id`) for some minutes. The token of the last handled
      frame moves the session back to that frame. Without a token there is no position to move back
      to, so a new session is created.
    - If the broker has dropped the session, a new one is created. It begins at the token, or, if
      there is no token yet, at the positions in the last Opened frame. So a watch from the tail
      does not skip records that were appended while it was disconnected.

    Args:
        spec: The topics to watch. The session updates it as the watch makes progress.
        resume_token: The token of an earlier watch of the same topics.

    Attributes:
        resume_token: The token of the last handled frame that had one.
    """

    def __init__(self, spec: feeds.WatchSpec, resume_token: str = "") -> None:
        self._spec = spec
        self._watch_id = ""
        self.resume_token: str = resume_token
        # The last request asked for an existing session, and has not been answered yet.
        self._is_resuming = False
        self._backoff = Backoff(_FIRST_PAUSE, _LAST_PAUSE)

    @property
    def topics(self) -> list[str]:
        """Full names of the topics that are not deleted."""
        return list(self._spec.topics)

    @property
    def is_over(self) -> bool:
        """Whether all topics were deleted, so that no more frames can come."""
        return not self._spec.topics

    def request(self) -> feeds.WatchRequest:
        """Return the request that opens the next stream."""
        self._is_resuming = bool(self._watch_id and self.resume_token)
        if self._is_resuming:
            return feeds.WatchRequest(watch_id=self._watch_id, resume_token=self.resume_token)
        self._watch_id = ""
        return feeds.WatchRequest(spec=self._spec, resume_token=self.resume_token)

    def received(self, wire: feeds.Frame) -> Frame | None:
        """Process a received frame; return the frame to handle, or None if there is none."""
        self._backoff.reset()
        if wire.HasField("opened"):
            self._opened(wire.opened)
        frame = frame_of(wire)
        if isinstance(frame, TopicDeleted) and frame.topic not in self._spec.topics:
            # A repeat: the broker cannot know whether the first one has arrived.
            frame = None
        if frame is None:
            self.handled(wire)
        return frame

    def handled(self, wire: feeds.Frame) -> None:
        """Record that the handler is done with the frame."""
        if wire.resume_token:
            self.resume_token = wire.resume_token
        if wire.HasField("topic_deleted"):
            # A new session cannot ask for a deleted topic.
            self._spec.topics.pop(wire.topic_deleted.topic, None)

    def broken(self, cause: RpcError | None) -> float:
        """Process the end of a stream.

        Args:
            cause: The error. None if the stream ended with OK.

        Returns:
            Seconds to wait before the next stream is opened.

        Raises:
            RpcError: The cause, if a retry cannot fix it.
        """
        if self._watch_id and isinstance(cause, NotFound):
            self._watch_id = ""
            return 0.0 if self._is_resuming else self._backoff.next_pause()
        if cause is not None and cause.grpc_status_code in TERMINAL_CODES:
            raise cause
        return self._backoff.next_pause()

    def _opened(self, opened: feeds.Frame.Opened) -> None:
        self._watch_id = opened.watch_id
        self._is_resuming = False
        for topic, start in opened.topics.items():
            if topic in self._spec.topics:
                position = self._spec.topics[topic]
                position.after_seq, position.epoch = start.after_seq, start.epoch
