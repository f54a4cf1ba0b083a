"""A watch: a reader's positions in many topics, and the stream that sends it new records."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial

from google.protobuf.duration_pb2 import Duration

from pullstream_emulator.engine.now import Now
from pullstream_emulator.engine.timetable import TimedTask, Timetable
from pullstream_protocol.errors import Aborted, RpcError
from pullstream_protocol.messages import encoded_pb2 as encoded
from pullstream_protocol.messages import feeds_pb2 as feeds

from . import resume_token
from .feed import Wake
from .selection import Limits
from .unsent import COPIES, Unsent
from .watched_topic import WatchedTopic

_log = logging.getLogger("pullstream.emulator")

# Lifetime of a session after the end of its stream, in seconds.
SESSION_TTL = 300.0

# Seconds after which a reader that takes no frame counts as slow, and after which it is ended.
SLOW_AFTER = 5.0
GIVEN_UP_AFTER = 30.0

# Estimated memory of a session, in bytes: the session, each topic, each character of a topic's
# name, and each character of a filter. The figures are measured and rounded up.
_SESSION_BYTES = 2048
_TOPIC_BYTES = 1024
_NAME_FACTOR = 4
_FILTER_FACTOR = 30

HEARTBEAT = encoded.EncodedFrame(heartbeat=feeds.Frame.Heartbeat())


def session_size(spec: feeds.WatchSpec) -> int:
    """Return the estimated memory of a session for this spec, in bytes."""
    return _SESSION_BYTES + sum(
        _TOPIC_BYTES + _NAME_FACTOR * len(name) + _FILTER_FACTOR * len(position.filter)
        for name, position in spec.topics.items()
    )


class WatchSession:
    """The session of one reader. It outlives its streams; there is one stream at a time.

    Same owner as the engine and the feeds. There is no queue of frames: the next frame is built
    from the feeds when the stream asks for it, so a reader that has stopped reading costs only its
    positions.

    Args:
        watch_id: Id of the session; cannot be guessed.
        watched: The watched topics, by name.
        limits: Limits of one frame.
        heartbeat: Longest silence of a stream, in seconds.
        size: Memory of the session in bytes; see `session_size`.
        now: Reads the clocks.
        timetable: Due queue for the timeouts of its streams.
        unsent: Decides when its streams may build frames.

    Attributes:
        creator: The user of the session. The network layer refuses other users; None admits all.
    """

    def __init__(
        self,
        watch_id: str,
        watched: Mapping[str, WatchedTopic],
        limits: Limits,
        heartbeat: float,
        *,
        size: int,
        now: Callable[[], Now],
        timetable: Timetable,
        unsent: Unsent,
    ) -> None:
        self.id = watch_id
        self.heartbeat = heartbeat
        self.session_ttl = SESSION_TTL
        self.size = size
        self.creator: object = None
        self._watched = watched
        self._limits = limits
        self._now = now
        self._timetable = timetable
        self._unsent = unsent
        self._stream: WatchStream | None = None
        self._idle_since = now().monotonic
        # Topics that may have a frame, the next one first.
        self._ready: deque[WatchedTopic] = deque()
        self._wakes = {name: partial(self._grew, each) for name, each in watched.items()}

    def opened(self) -> encoded.EncodedFrame:
        """Return the first frame of a stream: the session, and its position in each topic."""
        return encoded.EncodedFrame(
            resume_token=self.resume_token,
            opened=feeds.Frame.Opened(
                watch_id=self.id,
                session_ttl=Duration(seconds=int(self.session_ttl)),
                topics={name: each.start() for name, each in self._watched.items()},
            ),
        )

    @property
    def resume_token(self) -> str:
        """Encodes the present positions in all topics."""
        # A list, because it is faster than a generator here, and every frame needs the token.
        return resume_token.encode([each.entry for each in self._watched.values()])

    def rewind(self, token: str) -> None:
        """Go back to the positions of a frame's token, in every topic where they are earlier.

        Raises:
            InvalidArgument: The token is malformed. Nothing is changed.
        """
        for name, position in resume_token.decode(token).items():
            if name in self._watched:
                self._watched[name].rewind(position)

    # ---- streams -------------------------------------------------------------------------------

    def attach(self, wake: Wake) -> WatchStream:
        """Begin a stream; an existing one ends with Aborted.

        Args:
            wake: Called when there may be a frame after `next_frame` had none, and when the stream
                has to end. It must only set a flag, because the engine calls it in the middle of
                its work.
        """
        self.end_stream(Aborted(f"Another stream of watch {self.id} has begun."))
        self._stream = stream = WatchStream(self, wake, self._now, self._timetable, self._unsent)
        for name, each in self._watched.items():
            each.feed.watchers += 1
            each.feed.listen(self._wakes[name])
            each.begin()
            each.is_ready = each.has_more
        self._ready = deque(each for each in self._watched.values() if each.is_ready)
        return stream

    def end_stream(self, reason: RpcError) -> None:
        """End the present stream, if any. The session stays."""
        if self._stream is not None:
            self._stream.end(reason)

    def detach(self, stream: WatchStream) -> None:
        """Note that a stream has ended. Does nothing for a stream that was replaced."""
        if stream is not self._stream:
            return
        self._stream = None
        self._idle_since = self._now().monotonic
        for name, each in self._watched.items():
            each.feed.watchers -= 1
            each.feed.ignore(self._wakes[name])

    def reserve_more(self, size: int) -> None:
        """Count `size` more bytes for the frame that is being written."""
        if self._stream is not None:
            self._unsent.reserve_more(self._stream, size)

    def is_expired(self, now: float) -> bool:
        """Return whether the session has been without a stream for too long."""
        return self._stream is None and now - self._idle_since >= self.session_ttl

    # ---- frames --------------------------------------------------------------------------------

    def _grew(self, watched: WatchedTopic) -> None:
        if not watched.is_ready:
            watched.is_ready = True
            self._ready.append(watched)
            if self._stream is not None:
                self._stream.wake()

    def next_frame(self, now: Now) -> encoded.EncodedFrame | None:
        """Return the next frame of the next topic in turn; a topic builds one frame per turn."""
        for _ in range(len(self._ready)):
            watched = self._ready.popleft()
            frame = watched.next_frame(self._limits, now)
            watched.is_ready = watched.has_more
            if watched.is_ready:
                self._ready.append(watched)
            if frame is not None:
                frame.resume_token = self.resume_token
                return frame
            if watched.is_ready:
                # It has examined many unwanted records. Let other streams have their turn.
                break
        return None

    @property
    def has_more(self) -> bool:
        """Whether there may be another frame now."""
        return bool(self._ready)


class StreamPhase(Enum):
    """Activity of a stream."""

    # Waiting for a frame to send.
    IDLE = "idle"
    # It has been silent long enough to be woken for a heartbeat.
    DUE = "due"
    # A frame was handed out; in SLOW, its reader has not taken it for some time.
    WRITING = "writing"
    SLOW = "slow"
    ENDED = "ended"


class WatchStream(TimedTask):
    """One open stream of a watch: provides the frames, and checks that the reader takes them.

    The stream asks for the next frame after it has written the one before. The time between two
    calls therefore shows how long a write takes.

    Args:
        watch: The session.
        wake: See Watch.attach.
        now: Reads the clocks.
        timetable: Due queue for heartbeats and timeouts.
        unsent: Decides when the stream may build a frame.

    Attributes:
        wake: See Watch.attach.
        ended: The reason why the stream must end; None while it may continue.
    """

    def __init__(
        self,
        watch: WatchSession,
        wake: Wake,
        now: Callable[[], Now],
        timetable: Timetable,
        unsent: Unsent,
    ) -> None:
        self.wake = wake
        self.ended: RpcError | None = None
        self._watch = watch
        self._now = now
        self._timetable = timetable
        self._unsent = unsent
        self._slow_since = 0.0
        # The Opened frame is being written.
        self._enter(StreamPhase.WRITING, now())

    def _enter(self, phase: StreamPhase, now: Now) -> None:
        """Begin a phase. Silence is measured from the last frame."""
        if phase is StreamPhase.WRITING:
            self._silent_since = now.monotonic
        self._phase = phase
        self._timetable.watch(self, now)

    def next_frame(self) -> encoded.EncodedFrame | None:
        """Return the frame to write now; None if there is none, and `wake` is called later.

        `wake` may be called at once. Give other streams their turn before the next call.

        Raises:
            RpcError: The stream must end with this error.
        """
        if self.ended is not None:
            raise self.ended
        now = self._now()
        self._unsent.release(self)
        # If there is no memory for a frame, `unsent` wakes the stream when there is.
        may_make_one = self._watch.has_more and self._unsent.admits(self)
        frame = self._watch.next_frame(now) if may_make_one else None
        if frame is not None:
            self._unsent.reserve(self, COPIES * frame.ByteSize())
        if may_make_one:
            self._unsent.wake_next()
        if frame is None and now.monotonic >= self._silent_since + self._watch.heartbeat:
            frame = HEARTBEAT
        self._enter(StreamPhase.IDLE if frame is None else StreamPhase.WRITING, now)
        if frame is None and may_make_one and self._watch.has_more:
            self.wake()
        return frame

    def end(self, reason: RpcError) -> None:
        """Make the stream end; the next call of `next_frame` raises the reason."""
        if self.ended is None:
            self.ended = reason
            self.detach()
            self.wake()

    def detach(self) -> None:
        """Note that the stream has ended. The session lives on until it expires."""
        self._phase = StreamPhase.ENDED
        self._timetable.forget(self)
        self._unsent.leave(self)
        self._watch.detach(self)

    @property
    def is_slow(self) -> bool:
        """Whether the reader has taken nothing for SLOW_AFTER seconds."""
        return self._phase is StreamPhase.SLOW

    def give_way(self) -> None:
        """End the stream, because the memory of its frame is needed."""
        self._give_up(SLOW_AFTER, ", and the broker needs the memory of its frame")

    def _give_up(self, seconds: float, reason: str = "") -> None:
        self.end(
            Aborted(
                f"The reader of watch {self._watch.id} has taken nothing for {seconds:g} s"
                f"{reason}. Resume the watch: it continues with the records that its topics have."
            )
        )

    # ---- time ----------------------------------------------------------------------------------

    def next_due(self, now: Now) -> float | None:
        """Return when a heartbeat is due or a write takes too long; None if neither can be."""
        if self._phase in (StreamPhase.DUE, StreamPhase.ENDED):
            return None
        if self._phase is StreamPhase.IDLE:
            return self._silent_since + self._watch.heartbeat
        if self._phase is StreamPhase.WRITING:
            return self._silent_since + SLOW_AFTER
        # Counted from when slowness was noticed: after a jump of the clock, a healthy reader still
        # gets this time to read.
        return self._slow_since + GIVEN_UP_AFTER - SLOW_AFTER

    def advance(self, now: Now) -> None:
        """Make a heartbeat due, report a slow reader, or end the stream of a blocked one."""
        due = self.next_due(now)
        if due is None or now.monotonic < due:
            # The registered time belonged to an earlier phase.
            return
        if self._phase is StreamPhase.IDLE:
            self._phase = StreamPhase.DUE
            self.wake()
        elif self._phase is StreamPhase.WRITING:
            self._phase, self._slow_since = StreamPhase.SLOW, now.monotonic
            _log.warning(
                "The reader of watch %s has taken nothing for %g s.", self._watch.id, SLOW_AFTER
            )
            if self._unsent.is_waited_for(self):
                self.give_way()
        else:
            self._give_up(GIVEN_UP_AFTER)
