"""The loop of a receiver: from a subscription to the segments of a spool."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from secrets import token_hex

import pyarrow as pa
import pyarrow.compute as pc

from pullstream.client import SubscriberClient
from pullstream.spark.errors import SpoolError
from pullstream.spark.protocol.acknowledge import Acknowledge
from pullstream.spark.protocol.elapsed import elapsed as since_boot
from pullstream.spark.protocol.receiver import attempts_warning
from pullstream.spark.protocol.storage import Storage, probe
from pullstream.spark.receiving.segment_writer import SegmentWriter, WrittenSegment
from pullstream.spark.receiving.subscription_source import SubscriptionSource
from pullstream.spark.settings import IngestSettings
from pullstream.spark.spool_store import spool_errors
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock
from pullstream_protocol.errors import RpcError

from .repeating_storage import RepeatingStorage
from .report import Activity, ReceiverReport
from .settings import ReceiverSettings

_log = logging.getLogger("pullstream.spark")

# Seconds between two looks at the marks: normally, and while the receiver can only wait for them.
_LOOK = 5.0
_SOON = 1.0

# From this load of flow control on, the stream is about to pause until messages are acknowledged.
_LOADED = 0.5

# Seconds without a message after which the loop checks whether the subscription has failed.
_IDLE = 1.0

# An "available now" run must end: it fails after this many seconds without a working stream.
_GIVE_UP = 60.0

# Seconds for the answers of the server at the end.
_LAST_ANSWERS = 5.0

# Seconds for a question about the settings of the subscription.
_ASK_WITHIN = 2.0


class ReceiverLoop:
    """Receives messages, writes them as segments, and settles them by the rules of a spool.

    One thread calls `run`, once. Any thread may call the other methods, but no signal handler.

    Args:
        settings: The settings.
        storage: The folder, for tests.
        clock: Source of time.
        elapsed: A clock that no one sets and that also runs while the machine sleeps, in seconds.
        connect: Creates the client, for tests.
    """

    def __init__(
        self,
        settings: ReceiverSettings,
        *,
        storage: Storage | None = None,
        clock: Clock = SYSTEM_CLOCK,
        elapsed: Callable[[], float] = since_boot,
        connect: Callable[[], SubscriberClient] | None = None,
    ) -> None:
        self._settings = settings
        source = settings.source
        self._clock = clock
        self._connect = connect
        self._changed = threading.Condition()
        self._is_over = False
        folder = source.spool() if storage is None else storage
        self._storage = RepeatingStorage(folder, source.lease_seconds, clock, self._pause)
        self._writer = SegmentWriter(
            source, self._storage, share=settings.share, clock=clock, elapsed=elapsed
        )
        self._buffer = self._writer.buffer
        self._receiver = self._writer.receiver
        self._feed: SubscriptionSource | None = None
        self._began = clock.monotonic()
        self._looked = self._began
        self._activity = Activity.STARTING
        self._segments = self._rows = self._bytes = self._abandoned = 0

    def stop(self) -> None:
        """Let `run` end soon: it returns the messages that are not acknowledged."""
        with self._changed:
            self._is_over = True
        self._wake()

    def run(self) -> None:
        """Receive until `stop` is called, or until the end of an "available now" run.

        At the end, messages that are not acknowledged are returned to the server. Those in segments
        come again, are left out, and are acknowledged then.

        Raises:
            SpoolError: The spool cannot be used, or a call has failed for the time of a lease.
            RpcError: The subscription has failed permanently.
        """
        self._clock.add_waker(self._wake)
        try:
            with spool_errors(str(self._settings.source.spool_dir)):
                self._run()
        except SpoolError as error:
            # After `stop`, calls are not repeated any more.
            if not self._is_over:
                raise
            _log.warning("the receiver has ended while the spool failed: %s", error)
        finally:
            self._clock.remove_waker(self._wake)

    def report(self) -> ReceiverReport:
        """Return the present numbers."""
        feed, receiver = self._feed, self._receiver
        numbers = None if feed is None else feed.statistics
        outage = None if feed is None else feed.outage
        activity, problem = self._activity, ""
        if activity is not Activity.ENDING:
            if self._storage.trouble:
                activity, problem = Activity.STORAGE, self._storage.trouble
            elif outage is not None:
                activity, problem = Activity.UNREACHABLE, outage.error
        return ReceiverReport(
            name=receiver.name,
            activity=activity,
            seconds=self._clock.monotonic() - self._began,
            segments=self._segments,
            rows=self._rows,
            bytes=self._bytes,
            abandoned=self._abandoned,
            waiting_segments=receiver.waiting_segments,
            waiting_bytes=receiver.waiting_bytes,
            leased=0 if numbers is None else numbers.leased,
            acknowledged=0 if numbers is None else numbers.acked,
            returned=0 if numbers is None else numbers.returned,
            expired=0 if numbers is None else numbers.expired,
            redelivered=0 if numbers is None else numbers.redelivered,
            repeated=self._storage.repeated,
            problem=problem,
        )

    def _run(self) -> None:
        probe(self._storage, token_hex(16))
        self._writer.start()
        give_up_after = _GIVE_UP if self._settings.available_now else None
        self._feed = feed = SubscriptionSource(
            self._settings.source, self._buffer, self._connect, give_up_after=give_up_after
        )
        try:
            _warn_about_attempts(feed.client, self._settings.source)
            self._activity = Activity.RECEIVING
            self._receive(self._writer, feed)
        finally:
            self._activity = Activity.ENDING
            # Also the messages of segments that are not committed: nobody else acknowledges them
            # before they come again.
            feed.close(_LAST_ANSWERS)
            self._buffer.close()

    def _receive(self, writer: SegmentWriter, feed: SubscriptionSource) -> None:
        settings, receiver = self._settings, self._receiver
        source, limits = settings.source, (settings.segment_rows, settings.segment_bytes)
        until = self._clock.now() if settings.available_now else None
        is_drained = False
        while not self._is_over:
            feed.check()
            self._look_if_due(writer, feed, is_drained=is_drained)
            has_room = receiver.has_room(settings.segment_bytes)
            if is_drained or not has_room:
                if is_drained and not self._is_waiting:
                    return
                self._activity = Activity.DRAINED if is_drained else Activity.FULL
                self._pause(_SOON)
                continue
            self._activity = Activity.RECEIVING
            found = self._buffer.wait(
                *limits,
                linger=source.linger,
                idle=_IDLE if until is None else source.drain_wait,
                drain=until is not None,
                is_over=lambda: self._is_over,
            )
            if self._is_over:
                break
            if found:
                is_drained = self._write(writer, limits, until)
            elif until is not None:
                # A stream that is paused until messages are acknowledged is quiet, too.
                is_drained = feed.statistics.load < _LOADED
        if self._is_waiting:
            self._look(writer)

    @property
    def _is_waiting(self) -> bool:
        """Whether messages wait until their segments are committed."""
        return (
            self._settings.source.acknowledge is Acknowledge.COMMITTED
            and self._receiver.waiting_segments > 0
        )

    def _write(self, writer: SegmentWriter, limits: tuple[int, int], until: float | None) -> bool:
        """Write a segment; return whether all its messages were published after a time."""
        written: WrittenSegment | None = writer.write(*limits)
        if written is None:
            return False
        if written.manifest is None:
            self._abandoned += 1
            return False
        self._segments += 1
        self._rows += len(written.publish_times)
        self._bytes += written.manifest.size
        if until is None:
            return False
        first = pc.min(written.publish_times.cast(pa.int64())).as_py()
        return first is not None and first / 1e6 > until

    def _look_if_due(
        self, writer: SegmentWriter, feed: SubscriptionSource, *, is_drained: bool
    ) -> None:
        """Look at the marks. Each look is four requests or more, so idle receivers look rarely."""
        receiver, room = self._receiver, self._settings.segment_bytes
        if not receiver.waiting_segments:
            return
        is_full = is_drained or not receiver.has_room(room)
        if self._settings.source.acknowledge is Acknowledge.STORED:
            # The marks only say how much room there is.
            if receiver.waiting_bytes + room <= self._settings.share / 2:
                return
        else:
            is_full = is_full or feed.statistics.load >= _LOADED
        if self._clock.monotonic() - self._looked >= (_SOON if is_full else _LOOK):
            self._look(writer)

    def _look(self, writer: SegmentWriter) -> None:
        writer.look()
        self._looked = self._clock.monotonic()

    def _pause(self, seconds: float) -> bool:
        """Wait for some seconds; return whether the receiver is to end."""
        until = self._clock.monotonic() + seconds
        with self._changed:
            while not self._is_over and (timeout := self._clock.timeout(until)) != 0.0:
                self._changed.wait(timeout)
            return self._is_over

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
        self._buffer.check_again()


def _warn_about_attempts(client: SubscriberClient, source: IngestSettings) -> None:
    try:
        found = client.get_subscription(
            subscription=source.subscription, retry=None, timeout=_ASK_WITHIN
        )
    except RpcError:
        # A reader of messages need not have the right to read settings. The stream will tell.
        return
    attempts = found.dead_letter_policy.max_delivery_attempts
    if warning := attempts_warning(source.acknowledge, attempts):
        _log.warning("%s: %s", source.subscription, warning)
