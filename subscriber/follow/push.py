"""What the machine knows of its stream: one at a time, each with its number."""

from __future__ import annotations

from .runs import LiveBuffer
from .settings import Rules


class Push:
    """The newest stream, whether it is wanted still, and what it has brought.

    number: of the newest stream; 0: there was none.
    begins_after: what comes after this number comes by the stream.
    silent_at: when it is to be taken for dead unless something comes, on the monotonic clock.
    """

    def __init__(self, rules: Rules) -> None:
        self.number: int = 0
        self.is_wanted: bool = False
        self.begins_after: int = 0
        self.silent_at: float = 0.0
        self.buffer: LiveBuffer = LiveBuffer(rules.live_buffer, rules.live_bytes)
        self._patience = rules.patience

    def begin(self, now: float) -> int:
        """There is to be another stream; returns its number."""
        self.number += 1
        self.is_wanted = True
        self.silent_at = now + self._patience
        return self.number

    def hears(self, stream: int, now: float) -> bool:
        """Whether an event of this stream counts. If so it has shown that it lives."""
        counts = self.is_wanted and stream == self.number
        if counts:
            self.silent_at = now + self._patience
        return counts

    def end(self) -> bool:
        """Forget the stream and what it has brought; whether there was one."""
        was_wanted, self.is_wanted = self.is_wanted, False
        self.buffer.clear()
        return was_wanted
