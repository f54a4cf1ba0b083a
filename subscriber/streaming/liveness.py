"""When to ping the server, and when its silence means that the stream is dead."""

from __future__ import annotations

# As the official clients do (StreamingPullRequest.protocol_version 1): a ping every 30 s, and any
# response within 15 s of it.
PING_EVERY = 30.0
PONG_WITHIN = 15.0


class Liveness:
    """The rules of the heartbeat on one subscription. Not thread-safe.

    A server that does not answer pings (there are such) must not be taken for dead, so its silence
    counts only after the first pong: an answer to an empty request. From then on it counts on every
    stream, as what made one fall silent may do so to the next from its beginning. It does not count
    while the reader is paused, when the answers lie unread.
    Times are seconds on one monotonic clock.
    """

    def __init__(self) -> None:
        self._next_ping: float | None = None
        self._silent_since: float | None = None
        self._answers_pings = False
        self._paused = False

    def opened(self, now: float) -> None:
        """A stream was opened. The first ping goes out at once, to learn whether it is answered."""
        self._next_ping = now
        self._silent_since = None

    def closed(self) -> None:
        """There is no stream to watch."""
        self._next_ping = None
        self._silent_since = None

    def paused(self) -> None:
        """Nobody reads what the server sends. Pings go on, so that it knows of us."""
        self._paused = True
        self._silent_since = None

    def resumed(self) -> None:
        """Answers are read again; the next ping counts."""
        self._paused = False

    def received(self, *, is_pong: bool) -> None:
        """Any response shows that the server lives."""
        self._silent_since = None
        self._answers_pings |= is_pong

    def ping_due(self, now: float) -> bool:
        """Whether to send a ping now; if so it is taken as sent."""
        if self._next_ping is None or now < self._next_ping:
            return False
        self._next_ping = now + PING_EVERY
        if self._silent_since is None and not self._paused:
            self._silent_since = now
        return True

    def is_dead(self, now: float) -> bool:
        return self._answers_pings and self._pong_deadline() <= now

    def next_due(self) -> float | None:
        if self._next_ping is None:
            return None
        return min(self._next_ping, self._pong_deadline())

    def _pong_deadline(self) -> float:
        if not self._answers_pings or self._silent_since is None:
            return float("inf")
        return self._silent_since + PONG_WITHIN
