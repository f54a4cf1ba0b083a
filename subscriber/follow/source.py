"""What a follower reads from: calls to the broker, and what they bring in the machine's terms."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message

from protocol.errors import AlreadyExists, Cancelled
from protocol.messages import feeds_pb2 as feeds
from protocol.messages import pubsub_pb2 as pubsub
from subscriber.feeds.frames import gap_of
from subscriber.feeds.watch import FrameCall, frame_calls
from subscriber.refused_threads import start_or_undo
from subscriber.request import routing_header
from subscriber.rpc import Rpcs, to_error

from .events import Checkpoint, FallCause
from .record import Record
from .runs import Answer, Run
from .settings import Settings

_log = logging.getLogger("pullstream.follow")

# A read that waits may take so much longer, in seconds.
_READ_TIMEOUT = 15.0
_CREATE_TIMEOUT = 15.0

# A frame is a small part of the live buffer, which loses whole frames.
_FRAMES_IN_BUFFER = 4
_MAX_FRAME = 256
_MAX_READ = 1000
_READ_BYTES = 1024 * 1024


class Source:
    """The calls of one follower. One thread calls; any other may `cut` it off."""

    def __init__(self, rpcs: Rpcs, settings: Settings) -> None:
        self._rpcs = rpcs
        self._settings = settings
        self._begin_stream = frame_calls(rpcs.channel)
        self._lock = threading.Lock()
        self._call: Any = None
        self._cut = False

    def create_topic(self) -> None:
        """Make the topic unless it exists. Raises as `read` does."""
        with suppress(AlreadyExists):
            self._make("CreateTopic", pubsub.Topic(name=self._settings.topic), _CREATE_TIMEOUT)

    def read(self, after: Checkpoint | None, wait: float) -> Answer:
        """Read once; see `actions.Read`.

        Raises:
            RpcError: it failed, or was cut off.
        """
        settings = self._settings
        request = feeds.ReadRequest(
            topic=settings.topic,
            start=self._position(after),
            max_messages=_MAX_READ,
            max_bytes=_READ_BYTES,
            exclude_node=settings.exclude_node,
            wait=_duration(wait),
        )
        return self._answer(after, self._make("Read", request, wait + _READ_TIMEOUT))

    def stream(self) -> FrameCall:
        """Begin a stream at the end of the topic."""
        settings = self._settings
        spec = feeds.WatchSpec(
            topics={settings.topic: self._position(None)},
            exclude_node=settings.exclude_node,
            max_messages=min(max(settings.rules.live_buffer // _FRAMES_IN_BUFFER, 1), _MAX_FRAME),
            heartbeat=_duration(settings.rules.patience / 2),
        )
        return self._begin_stream(feeds.WatchRequest(spec=spec))

    def cut(self) -> None:
        """End the call under way, and let no other begin."""
        with self._lock:
            self._cut = True
            if self._call is not None:
                self._call.cancel()

    def _make(self, method: str, request: Message, timeout: float) -> Any:
        with self._lock:
            self._call = call = self._rpcs.begin(
                method, request, timeout=timeout, metadata=(routing_header(request),)
            )
            if self._cut:
                call.cancel()
        try:
            return call.result()
        except grpc.FutureCancelledError:
            raise Cancelled("the follower was stopped") from None
        except grpc.RpcError as error:
            raise to_error(error, method) from error

    def _position(self, after: Checkpoint | None) -> feeds.Position:
        text = self._settings.filter
        if after is None:
            return feeds.Position(tail=True, filter=text)
        return feeds.Position(after_seq=after.seq, epoch=after.epoch, filter=text)

    def _answer(self, after: Checkpoint | None, response: feeds.ReadResponse) -> Answer:
        topic = self._settings.topic
        records = [Record(message, topic) for message in response.messages]
        from_seq = response.next_seq if after is None else after.seq
        return Answer(
            Run(from_seq, response.next_seq, records),
            response.head_seq,
            response.caught_up,
            response.epoch,
            gap_of(response.gap) if response.HasField("gap") else None,
        )


class Listener(Protocol):
    """Whom a stream tells what it brings; the machine's events, and on the stream's thread."""

    def opened(self, stream: int, after_seq: int, epoch: int) -> None: ...

    def arrived(self, stream: int, run: Run, head_seq: int) -> None: ...

    def heard(self, stream: int) -> None: ...

    def lost(self, stream: int, cause: FallCause) -> None: ...


class LiveStream:
    """One stream, and the thread that reads it until it ends. `lost` is the last it tells.

    The thread never waits for the handler: what is too much leaves the buffer. Any thread may
    `leave` the stream; what it still brings is then for nobody.
    """

    def __init__(
        self, number: int, topic: str, begin: Callable[[], FrameCall], listener: Listener
    ) -> None:
        self._number = number
        self._topic = topic
        self._listener = listener
        self._at = 0
        self._call = begin()
        # A daemon: a program may end without having closed what it follows.
        self._thread = threading.Thread(
            target=self._run, name="pullstream-follow-stream", daemon=True
        )
        start_or_undo(self._thread, self._call.cancel)

    def leave(self) -> None:
        self._call.cancel()

    def join(self) -> None:
        """Wait for the thread of a stream that was left."""
        self._thread.join()

    def _run(self) -> None:
        cause: FallCause | None = None
        try:
            while cause is None:
                encoded = next(self._call)
                cause = self._take(feeds.Frame.FromString(encoded), len(encoded))
        except StopIteration:
            cause = "stream lost"
        except (grpc.RpcError, DecodeError) as error:
            # If it cannot be mended, the next read says so.
            _log.info("the stream of %s broke: %s", self._topic, _told(error))
            cause = "stream lost"
        self._call.cancel()
        self._listener.lost(self._number, cause)

    def _take(self, frame: feeds.Frame, size: int) -> FallCause | None:
        """Pass on what a frame brings; returns why the stream is of no more use, if it is not."""
        number, listener = self._number, self._listener
        match frame.WhichOneof("kind"):
            case "messages":
                found = frame.messages
                records = [Record(message, self._topic) for message in found.messages]
                # What lies between two frames is not for this reader, or a frame would say "gap".
                run, self._at = Run(self._at, found.to_seq, records, size), found.to_seq
                listener.arrived(number, run, found.head_seq)
            case "caught_up" if frame.caught_up.head_seq > self._at:
                head_seq = frame.caught_up.head_seq
                run, self._at = Run(self._at, head_seq), head_seq
                listener.arrived(number, run, head_seq)
            case "opened":
                start = frame.opened.topics[self._topic]
                self._at = start.after_seq
                listener.opened(number, start.after_seq, start.epoch)
            case "gap":
                # The next read tells of it, at the right place.
                return "gap"
            case "topic_deleted":
                return "topic deleted"
            case _:
                listener.heard(number)
        return None


def _told(error: Exception) -> Exception:
    return to_error(error, "Watch") if isinstance(error, grpc.RpcError) else error


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromMilliseconds(int(seconds * 1000))
    return duration
