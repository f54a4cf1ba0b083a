"""A watch: a reader's positions in many topics, and the stream that brings it what is new."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial

from google.protobuf.duration_pb2 import Duration

from emulator.engine.moment import Moment
from emulator.engine.timetable import TimedTask, Timetable
from protocol.errors import Aborted, RpcError
from protocol.messages import encoded_pb2 as encoded
from protocol.messages import feeds_pb2 as feeds

from . import resume_token
from .listeners import Wake
from .selection import Limits
from .watched import Watched

_log = logging.getLogger("pullstream.emulator")

# How long a session lives after the end of its stream, in seconds.
SESSION_TTL = 300.0

# A reader that has not taken a frame for so long is slow, and for so long is given up, in seconds.
SLOW_AFTER = 5.0
GIVEN_UP_AFTER = 30.0

HEARTBEAT = encoded.EncodedFrame(heartbeat=feeds.Frame.Heartbeat())


class Watch:
    """The session of one reader. It outlives its streams, of which there is one at a time.

    creator: whose it is, for the shells, which let nobody else in; None for everybody's.

    Owned by the engine's owner, like the feeds. There is no queue of frames: the next one is made
    of what the feeds have when it is asked for, so a reader that stands still costs its positions
    and nothing else.

    Args:
        watch_id: names the session; nobody can guess it.
        watched: by topic.
        limits: of one frame.
        heartbeat: a stream is silent for so many seconds at most.
        now: reads the clocks.
        timetable: where its streams announce their moments.
    """

    def __init__(
        self,
        watch_id: str,
        watched: Mapping[str, Watched],
        limits: Limits,
        heartbeat: float,
        *,
        now: Callable[[], Moment],
        timetable: Timetable,
    ) -> None:
        self.id = watch_id
        self.heartbeat = heartbeat
        self.session_ttl = SESSION_TTL
        self.creator: object = None
        self._watched = watched
        self._limits = limits
        self._now = now
        self._timetable = timetable
        self._stream: Stream | None = None
        self._idle_since = now().monotonic
        # Those that may have something to tell, the next one first.
        self._ready: deque[Watched] = deque()
        self._wakes = {name: partial(self._grew, each) for name, each in watched.items()}

    def opened(self) -> encoded.EncodedFrame:
        """The first frame of a stream: the session, and where it stands in each topic."""
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
        """Stands for its positions in all topics now."""
        # No generator: every frame asks for this.
        return resume_token.encode([each.entry for each in self._watched.values()])

    def rewind(self, token: str) -> None:
        """Go back to the positions that a frame's token stands for, where they are earlier.

        Raises:
            InvalidArgument: no frame has brought this. Then nothing is changed.
        """
        for name, place in resume_token.decode(token).items():
            if name in self._watched:
                self._watched[name].rewind(place)

    # ---- streams -------------------------------------------------------------------------------

    def attach(self, wake: Wake) -> Stream:
        """Begin a stream; one that is there already ends (Aborted).

        wake: called when there may be a frame after `next_frame` had none, and when the stream is
            to end. It must only make a note of it: the engine is in the middle of its work.
        """
        self.end_stream(Aborted(f"Another stream of the watch {self.id} has begun."))
        self._stream = stream = Stream(self, wake, self._now, self._timetable)
        for name, each in self._watched.items():
            each.feed.watchers += 1
            each.feed.listen(self._wakes[name])
            each.begin()
            each.is_ready = each.has_more
        self._ready = deque(each for each in self._watched.values() if each.is_ready)
        return stream

    def end_stream(self, reason: RpcError) -> None:
        """Tell the stream, if there is one, to end. The session stays."""
        if self._stream is not None:
            self._stream.end(reason)

    def detach(self, stream: Stream) -> None:
        """A stream has ended; of one that was replaced nothing is left to do."""
        if stream is not self._stream:
            return
        self._stream = None
        self._idle_since = self._now().monotonic
        for name, each in self._watched.items():
            each.feed.watchers -= 1
            each.feed.ignore(self._wakes[name])

    def is_expired(self, now: float) -> bool:
        """Whether it has been without a stream for too long."""
        return self._stream is None and now - self._idle_since >= self.session_ttl

    # ---- frames --------------------------------------------------------------------------------

    def _grew(self, watched: Watched) -> None:
        if not watched.is_ready:
            watched.is_ready = True
            self._ready.append(watched)
            if self._stream is not None:
                self._stream.wake()

    def next_frame(self, now: Moment) -> encoded.EncodedFrame | None:
        """The next frame of the topic whose turn it is; each topic has one frame a turn."""
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
                # It has read much that is not wanted. Let others have their turn.
                break
        return None

    @property
    def has_more(self) -> bool:
        """Whether there may be another frame now."""
        return bool(self._ready)


class Phase(Enum):
    """What a stream is doing."""

    # Waiting for something to tell.
    IDLE = "idle"
    # It has been silent for so long that it was woken for a heartbeat.
    DUE = "due"
    # Its reader is to take a frame, and has not done so for some time.
    WRITING = "writing"
    SLOW = "slow"
    ENDED = "ended"


class Stream(TimedTask):
    """One stream of a watch, as long as it is open: what to send, and whether that gets through.

    The next frame is asked for when the one before it has been written. From that it is known how
    long a write takes.

    wake: see Watch.attach.
    ended: why it is to end; None as long as it may go on.
    """

    def __init__(
        self, watch: Watch, wake: Wake, now: Callable[[], Moment], timetable: Timetable
    ) -> None:
        self.wake = wake
        self.ended: RpcError | None = None
        self._watch = watch
        self._now = now
        self._timetable = timetable
        self._slow_since = 0.0
        # Opened is being written.
        self._enter(Phase.WRITING, now())

    def _enter(self, phase: Phase, now: Moment) -> None:
        """Begin a phase. How long it has been silent counts from its last frame."""
        if phase is Phase.WRITING:
            self._silent_since = now.monotonic
        self._phase = phase
        self._timetable.watch(self, now)

    def next_frame(self) -> encoded.EncodedFrame | None:
        """What to write now; None: `wake` is called when there may be something.

        It may be called at once: let others have their turn before you ask again.

        Raises:
            RpcError: the stream is to end with this.
        """
        if self.ended is not None:
            raise self.ended
        now = self._now()
        frame = self._watch.next_frame(now)
        if frame is None and now.monotonic >= self._silent_since + self._watch.heartbeat:
            frame = HEARTBEAT
        self._enter(Phase.IDLE if frame is None else Phase.WRITING, now)
        if frame is None and self._watch.has_more:
            self.wake()
        return frame

    def end(self, reason: RpcError) -> None:
        """Let it end; whoever serves it learns why from `next_frame`, and calls `detach`."""
        if self.ended is None:
            self.ended = reason
            self.detach()
            self.wake()

    def detach(self) -> None:
        """It has ended. The session lives on for its time."""
        self._phase = Phase.ENDED
        self._timetable.forget(self)
        self._watch.detach(self)

    # ---- time ----------------------------------------------------------------------------------

    def next_due(self, now: Moment) -> float | None:
        if self._phase in (Phase.DUE, Phase.ENDED):
            return None
        if self._phase is Phase.IDLE:
            return self._silent_since + self._watch.heartbeat
        if self._phase is Phase.WRITING:
            return self._silent_since + SLOW_AFTER
        # From when it was noticed: where a clock jumps, a reader that is well gets its chance.
        return self._slow_since + GIVEN_UP_AFTER - SLOW_AFTER

    def advance(self, now: Moment) -> None:
        due = self.next_due(now)
        if due is None or now.monotonic < due:
            # What was announced was for another phase.
            return
        if self._phase is Phase.IDLE:
            self._phase = Phase.DUE
            self.wake()
        elif self._phase is Phase.WRITING:
            self._phase, self._slow_since = Phase.SLOW, now.monotonic
            _log.warning(
                "The reader of the watch %s has taken nothing for %g s.", self._watch.id, SLOW_AFTER
            )
        else:
            self.end(
                Aborted(
                    f"The reader of the watch {self._watch.id} has taken nothing for "
                    f"{GIVEN_UP_AFTER:g} s. Resume it: what its topics still have is not lost."
                )
            )
