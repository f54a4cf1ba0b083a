"""State of a follower's live stream. There is one stream at a time, each with a number."""

from __future__ import annotations

from .record_ranges import LiveBuffer
from .settings import Rules


class LiveStreamState:
    """The newest stream: its number, whether it is still in use, and its buffered records.

    Attributes:
        number: The number of the newest stream. 0 if there was none.
        is_wanted: Whether the stream is in use.
        begins_after: The stream delivers the records after this sequence number.
        silent_at: The time at which the stream counts as dead unless something comes before, on the
            monotonic clock.
        buffer: The records that the stream has delivered.
    """

    def __init__(self, rules: Rules) -> None:
        self.number: int = 0
        self.is_wanted: bool = False
        self.begins_after: int = 0
        self.silent_at: float = 0.0
        self.buffer: LiveBuffer = LiveBuffer(rules.live_buffer, rules.live_bytes)
        self._patience = rules.patience

    def begin(self, now: float) -> int:
        """Begin another stream and return its number."""
        self.number += 1
        self.is_wanted = True
        self.silent_at = now + self._patience
        return self.number

    def hears(self, stream: int, now: float) -> bool:
        """Return whether an event of this stream counts; if so, record that the stream is alive."""
        counts = self.is_wanted and stream == self.number
        if counts:
            self.silent_at = now + self._patience
        return counts

    def end(self) -> bool:
        """End the use of the stream and drop its records; return whether there was one."""
        was_wanted, self.is_wanted = self.is_wanted, False
        self.buffer.clear()
        return was_wanted
