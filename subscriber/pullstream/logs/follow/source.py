"""Calls of a follower to the broker: reads and streams, in the terms of the state machine."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message

from pullstream.logs.feeds.frames import gap_of
from pullstream.logs.feeds.watch_reader import FrameCall, frame_calls
from pullstream.rpc.named_errors import name_resource
from pullstream.rpc.request import routing_header
from pullstream.rpc.rpcs import Rpcs, to_error
from pullstream.runtime.thread_start import start_or_undo
from pullstream_protocol.call_lock import CallLock
from pullstream_protocol.errors import AlreadyExists, Cancelled
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .events import Checkpoint, FellBehindCause
from .records import ReadResult, Record, RecordRange
from .settings import FollowSettings

_log = logging.getLogger("pullstream.follow")

# The timeout of a read is this many seconds longer than its long poll.
_READ_TIMEOUT = 15.0
_CREATE_TIMEOUT = 15.0

# A frame is at most a quarter of the live buffer, because the buffer drops whole frames.
_FRAMES_IN_BUFFER = 4
_MAX_FRAME = 256
_MAX_READ = 1000
_READ_BYTES = 1024 * 1024


class Source:
    """The calls of one follower. One thread makes the calls; any other thread may call `cancel`."""

    def __init__(self, rpcs: Rpcs, settings: FollowSettings) -> None:
        self._rpcs = rpcs
        self._settings = settings
        self._lock = CallLock()
        self._call: Any = None
        self._is_cancelled = False

    def create_topic(self) -> None:
        """Create the topic if it does not exist. Raises the same errors as `read`."""
        with suppress(AlreadyExists):
            self._make("CreateTopic", pubsub.Topic(name=self._settings.topic), _CREATE_TIMEOUT)

    def read(self, after: Checkpoint | None, wait: float) -> ReadResult:
        """Make one read; see `machine.Read`.

        Raises:
            RpcError: The read failed, or `cancel` cancelled it.
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
        return self._result(after, self._make("Read", request, wait + _READ_TIMEOUT))

    def stream(self) -> FrameCall:
        """Open a stream at the end of the topic."""
        settings = self._settings
        spec = feeds.WatchSpec(
            topics={settings.topic: self._position(None)},
            exclude_node=settings.exclude_node,
            max_messages=min(max(settings.rules.live_buffer // _FRAMES_IN_BUFFER, 1), _MAX_FRAME),
            heartbeat=_duration(settings.rules.silence_limit / 2),
        )
        return frame_calls(self._rpcs.channel)(feeds.WatchRequest(spec=spec))

    def check(self) -> None:
        """Find out whether the server still answers, because a stream was left."""
        self._rpcs.check()

    def cancel(self) -> None:
        """Cancel the current call and all later ones."""
        with self._lock.once:
            self._is_cancelled = True
            if self._call is not None:
                self._call.cancel()

    def _make(self, method: str, request: Message, timeout: float) -> Any:
        with self._lock.once:
            self._call = call = self._rpcs.begin(
                method, request, timeout=timeout, metadata=(routing_header(request),)
            )
            if self._is_cancelled:
                call.cancel()
        try:
            return call.result()
        except grpc.FutureCancelledError:
            raise Cancelled("the follower was stopped") from None
        except grpc.RpcError as error:
            converted = to_error(error, method)
            name_resource(converted, [self._settings.topic])
            raise converted from None

    def _position(self, after: Checkpoint | None) -> feeds.Position:
        text = self._settings.filter
        if after is None:
            return feeds.Position(tail=True, filter=text)
        return feeds.Position(after_seq=after.seq, epoch=after.epoch, filter=text)

    def _result(self, after: Checkpoint | None, response: feeds.ReadResponse) -> ReadResult:
        topic = self._settings.topic
        records = [Record(message, topic) for message in response.messages]
        from_seq = response.next_seq if after is None else after.seq
        return ReadResult(
            RecordRange(from_seq, response.next_seq, records),
            response.head_seq,
            response.caught_up,
            response.epoch,
            gap_of(response.gap) if response.HasField("gap") else None,
        )


class StreamListener(Protocol):
    """Receives the events of a stream, on the thread of the stream. See `FollowMachine`."""

    def opened(self, stream: int, after_seq: int, epoch: int) -> None:
        """Called first; the stream delivers all records after `after_seq`."""

    def arrived(self, stream: int, record_range: RecordRange, head_seq: int) -> None:
        """Called for each range of records, with the newest number of the topic."""

    def heard(self, stream: int) -> None:
        """Called for a frame without records, which only shows that the stream is alive."""

    def lost(self, stream: int, cause: FellBehindCause) -> None:
        """Called last: the stream has ended or misses records."""


class LiveStream:
    """One stream, and the thread that reads it until it ends. Its last event is `lost`.

    The thread never waits for the handler: if the buffer is full, it drops records. Any thread may
    call `leave`. Events of the stream after that are ignored.
    """

    def __init__(
        self, number: int, topic: str, begin: Callable[[], FrameCall], listener: StreamListener
    ) -> None:
        self._number = number
        self._topic = topic
        self._listener = listener
        self._seq = 0
        self._call = begin()
        # A daemon thread, because a program may exit without closing its followers.
        self._thread = threading.Thread(
            target=self._run, name="pullstream-follow-stream", daemon=True
        )
        start_or_undo(self._thread, self._call.cancel)

    def leave(self) -> None:
        """Cancel the call, so that the thread ends soon; never waits."""
        self._call.cancel()

    def join(self) -> None:
        """Wait for the thread. Call `leave` before."""
        self._thread.join()

    def _run(self) -> None:
        cause: FellBehindCause | None = None
        try:
            while cause is None:
                encoded = next(self._call)
                cause = self._process(feeds.Frame.FromString(encoded), len(encoded))
        except StopIteration:
            cause = "stream lost"
        except (grpc.RpcError, DecodeError) as error:
            # If the error is permanent, the next read fails with it.
            _log.info("the stream of %s failed: %s", self._topic, _as_rpc_error(error))
            cause = "stream lost"
        except BaseException:
            # A defect: without this event, the follower would wait for the stream for ever.
            _log.exception("the stream of %s failed", self._topic)
            cause = "stream lost"
        self._call.cancel()
        self._listener.lost(self._number, cause)

    def _process(self, frame: feeds.Frame, size: int) -> FellBehindCause | None:
        """Process a frame; return the reason to leave the stream, or None to continue."""
        number, listener = self._number, self._listener
        match frame.WhichOneof("kind"):
            case "messages":
                found = frame.messages
                records = [Record(message, self._topic) for message in found.messages]
                # Numbers between two frames were filtered out or deleted on purpose. Lost records
                # would be reported with a gap frame.
                record_range = RecordRange(self._seq, found.to_seq, records, size)
                self._seq = found.to_seq
                listener.arrived(number, record_range, found.head_seq)
            case "caught_up" if frame.caught_up.head_seq > self._seq:
                head_seq = frame.caught_up.head_seq
                record_range = RecordRange(self._seq, head_seq)
                self._seq = head_seq
                listener.arrived(number, record_range, head_seq)
            case "opened":
                start = frame.opened.topics[self._topic]
                self._seq = start.after_seq
                listener.opened(number, start.after_seq, start.epoch)
            case "gap":
                # The next read reports the gap, in order with the records.
                return "gap"
            case "topic_deleted":
                return "topic deleted"
            case _:
                listener.heard(number)
        return None


def _as_rpc_error(error: Exception) -> Exception:
    return to_error(error, "Watch") if isinstance(error, grpc.RpcError) else error


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromMilliseconds(int(seconds * 1000))
    return duration
