"""Where a watch is, and how it goes on when its stream breaks. No thread, no gRPC, no sleeping."""

from __future__ import annotations

from protocol.errors import NotFound, RpcError
from protocol.messages import feeds_pb2 as feeds
from subscriber.streaming.backoff import Backoff
from subscriber.streaming.stream import TERMINAL_CODES

from .frames import Frame, TopicDeleted, frame_of

# What the broker asks readers to wait before they come back, in seconds; it grows while they are
# turned away, to far less than the session's life of 300 s.
_FIRST_PAUSE = 2.0
_LAST_PAUSE = 30.0


class WatchSession:
    """The reader's side of a session: what is asked for, what has been handled. Not thread-safe.

    A stream is opened by `request()`. Every frame of it goes to `received`, and to `handled` when
    whoever it was for is done with it; how the stream ended, to `broken`. What is sent again after
    a break begins behind the last frame that was handled, so that nothing is lost and nothing comes
    twice:

    - The broker keeps the session (`watch_id`) for some minutes; the token of the last handled
      frame takes it back to there. Without one nothing says where to, so another session is made.
    - When the broker has forgotten the session, another is made. The token says where to begin, and
      before there is one the position that the last opening told. So a watch from the tail does not
      skip what came while it was away.

    Args:
        spec: what to watch. Changed here, as the watch comes along.
        resume_token: of an earlier watch of the same topics.
    """

    def __init__(self, spec: feeds.WatchSpec, resume_token: str = "") -> None:
        self._spec = spec
        self._watch_id = ""
        self._token = resume_token
        # The last request was for the session, and there was no answer yet.
        self._is_resuming = False
        self._backoff = Backoff(_FIRST_PAUSE, _LAST_PAUSE)

    @property
    def resume_token(self) -> str:
        """Of the last handled frame that had one."""
        return self._token

    @property
    def is_over(self) -> bool:
        """Every topic was deleted: nothing can come any more."""
        return not self._spec.topics

    def request(self) -> feeds.WatchRequest:
        """What opens the next stream."""
        self._is_resuming = bool(self._watch_id and self._token)
        if self._is_resuming:
            return feeds.WatchRequest(watch_id=self._watch_id, resume_token=self._token)
        self._watch_id = ""
        return feeds.WatchRequest(spec=self._spec, resume_token=self._token)

    def received(self, wire: feeds.Frame) -> Frame | None:
        """A frame has come: what is to be handled, None if there is nothing."""
        self._backoff.reset()
        if wire.HasField("opened"):
            self._opened(wire.opened)
        frame = frame_of(wire)
        if isinstance(frame, TopicDeleted) and frame.topic not in self._spec.topics:
            # Told again, as the broker cannot know whether it had arrived.
            frame = None
        if frame is None:
            self.handled(wire)
        return frame

    def handled(self, wire: feeds.Frame) -> None:
        """Whoever the frame was for is done with it."""
        if wire.resume_token:
            self._token = wire.resume_token
        if wire.HasField("topic_deleted"):
            # A new session could not ask for it.
            self._spec.topics.pop(wire.topic_deleted.topic, None)

    def broken(self, cause: RpcError | None) -> float:
        """The stream ended, with OK if there is no cause. Returns seconds to wait before another.

        Raises:
            RpcError: the cause, when another attempt cannot mend it.
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
