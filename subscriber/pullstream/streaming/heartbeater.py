"""The heartbeater: pings the server, and notices when it stops answering."""

from __future__ import annotations

from collections.abc import Callable

from pullstream_protocol.clock import Clock
from pullstream_protocol.due_thread import DueThread

# As in the official clients (StreamingPullRequest.protocol_version 1): a ping every 30 s, and any
# response within 15 s after it.
PING_EVERY = 30.0
PONG_WITHIN = 15.0


class Liveness:
    """The rules of the heartbeat on one subscription. Not thread-safe.

    Some servers never answer pings, and must not count as dead. So silence counts only after the
    first pong, which is the answer to an empty request. From then on it counts on every stream,
    because the reason for the silence of one stream may silence the next one from its beginning.
    Silence does not count while the reader is paused, because answers then wait unread.

    Times are seconds on one monotonic clock.
    """

    def __init__(self) -> None:
        self._next_ping: float | None = None
        self._silent_since: float | None = None
        self._answers_pings = False
        self._paused = False

    def opened(self, now: float) -> None:
        """Note a new stream. The first ping is due immediately, to learn if the server answers."""
        self._next_ping = now
        self._silent_since = None

    def closed(self) -> None:
        """Note that there is no stream."""
        self._next_ping = None
        self._silent_since = None

    def paused(self) -> None:
        """Note that the reader is paused. Pings continue, so that the server sees this client."""
        self._paused = True
        self._silent_since = None

    def resumed(self) -> None:
        """Note that the reader reads again; the next ping counts."""
        self._paused = False

    def received(self, *, is_pong: bool) -> None:
        """Note a response; any response shows that the server is alive."""
        self._silent_since = None
        self._answers_pings |= is_pong

    def ping_due(self, now: float) -> bool:
        """Return whether to send a ping now. If so, the ping counts as sent."""
        if self._next_ping is None or now < self._next_ping:
            return False
        self._next_ping = now + PING_EVERY
        if self._silent_since is None and not self._paused:
            self._silent_since = now
        return True

    def is_dead(self, now: float) -> bool:
        """Return whether a server that answers pings has been silent for PONG_WITHIN seconds."""
        return self._answers_pings and self._pong_deadline() <= now

    def next_due(self) -> float | None:
        """Return when a ping is due or a pong is overdue; None if there is no stream."""
        if self._next_ping is None:
            return None
        return min(self._next_ping, self._pong_deadline())

    def _pong_deadline(self) -> float:
        if not self._answers_pings or self._silent_since is None:
            return float("inf")
        return self._silent_since + PONG_WITHIN


class Heartbeater:
    """An actor that takes events of the stream, sends pings and reports silence.

    Owns the Liveness rules; only its own thread touches them. The consumer's thread reports opened
    and closed streams and received responses. Flow control reports when that thread is paused.

    Args:
        clock: Measures time.
        ping: Sends an empty request on the stream. Must not wait.
        on_silence: Called when the server has stopped answering; should reset the stream.
    """

    def __init__(
        self, clock: Clock, *, ping: Callable[[], None], on_silence: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._ping = ping
        self._on_silence = on_silence
        self._liveness = Liveness()
        # The answer to a ping is an event for the thread. Frequent events of a busy stream set only
        # this flag and do not wake the thread. It reads the flag before it reports silence.
        self._heard = False
        self._is_paused = False
        self._was_paused = False
        self._thread = DueThread(
            clock, self._liveness.next_due, self._ping_or_report, name="pullstream-heartbeat"
        )

    def start(self) -> None:
        """Start the thread that sends pings and reports silence."""
        self._thread.start()

    def opened(self) -> None:
        """Begin heartbeats on a new stream, with an immediate ping."""
        self._thread.post(lambda: self._liveness.opened(self._clock.monotonic()))

    def closed(self) -> None:
        """Send no more pings until the next stream is opened."""
        self._thread.post(self._liveness.closed)

    def paused(self) -> None:
        """Ignore silence from now on, because answers wait unread; pings continue."""
        # In this order, because the thread reads them in the opposite order.
        self._is_paused = True
        self._was_paused = True

    def resumed(self) -> None:
        """Count silence again, from the next ping on."""
        self._is_paused = False

    def received(self, *, is_pong: bool) -> None:
        """Record a response; `is_pong` if it contains no messages."""
        if is_pong:
            self._thread.post(lambda: self._liveness.received(is_pong=True))
        else:
            self._heard = True

    def stop(self, timeout: float | None = None) -> None:
        """End the thread. Idempotent.

        Args:
            timeout: Seconds to wait for it.
        """
        self._thread.stop(timeout)

    def _ping_or_report(self) -> None:
        self._take_note()
        now = self._clock.monotonic()
        if self._liveness.is_dead(now):
            self._liveness.closed()
            self._on_silence()
        elif self._liveness.ping_due(now):
            self._ping()

    def _take_note(self) -> None:
        if self._was_paused:
            self._was_paused = False
            self._liveness.paused()
        if not self._is_paused:
            self._liveness.resumed()
        if self._heard:
            self._heard = False
            self._liveness.received(is_pong=False)
