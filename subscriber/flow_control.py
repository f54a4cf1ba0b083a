"""How much a subscriber takes on at a time, and the gauge that measures it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from .arguments import count, number

MIN_EXTENSION = 10
MAX_EXTENSION = 600

# The stream is paused when the load reaches 1.0 and resumed below this, so that it does not
# flutter.
RESUME_BELOW = 0.8


class FlowControl(NamedTuple):
    """Limits of one subscription. Names and defaults are the official client's.

    max_bytes: bytes of messages received and unfinished; a single larger message still gets
    through.
    max_messages: messages received and unfinished: running, waiting for a worker, or held for their
        ordering key.
    max_lease_duration: seconds for which a message's lease is extended, counted from its receipt.
        After that the message is given up and the server delivers it again.
    min_duration_per_lease_extension, max_duration_per_lease_extension: bounds in seconds of a
    single
        extension, 10 to 600; 0 leaves it to the times that callbacks have been seen to take.
    """

    max_bytes: int = 100 * 1024 * 1024
    max_messages: int = 1000
    max_lease_duration: float = 60 * 60
    min_duration_per_lease_extension: float = 0
    max_duration_per_lease_extension: float = 0

    def checked(self) -> FlowControl:
        """Self, if every value makes sense; raises ValueError or TypeError naming the one that
        does not."""
        for name in ("max_bytes", "max_messages"):
            count(name, getattr(self, name))
        if number("max_lease_duration", self.max_lease_duration) <= 0:
            raise ValueError(f"max_lease_duration is {self.max_lease_duration}; it must be above 0")
        for name in ("min_duration_per_lease_extension", "max_duration_per_lease_extension"):
            value = number(name, getattr(self, name))
            if value != 0 and not MIN_EXTENSION <= value <= MAX_EXTENSION:
                raise ValueError(
                    f"{name} is {value}; it must be 0 or between {MIN_EXTENSION} and "
                    f"{MAX_EXTENSION} seconds"
                )
        low, high = self.min_duration_per_lease_extension, self.max_duration_per_lease_extension
        if low and high and low > high:
            raise ValueError(
                f"min_duration_per_lease_extension ({low}) is above "
                f"max_duration_per_lease_extension ({high})"
            )
        return self


def limits_of(flow_control: FlowControl | tuple[Any, ...]) -> FlowControl:
    """What a user has given as `flow_control`, a FlowControl or the first of its values, checked.

    Raises:
        TypeError, ValueError: it is something else, or one of its values makes no sense.
    """
    if not isinstance(flow_control, (tuple, list)):
        raise TypeError(f"flow_control is {flow_control!r}; it must be a FlowControl")
    return FlowControl(*flow_control).checked()


class LoadGauge:
    """Counts the messages received and not finished, and pauses the stream while they are too many.

    Owns the two counters. The consumer's thread adds, the dispatcher's releases; each call takes a
    whole batch, so the lock is taken once per response and once per batch of outcomes.

    `pause` and `resume` are called under the lock, and must not call back. Otherwise this could
    happen: the consumer finds the load too high; the dispatcher releases all of it and resumes a
    stream that is still running; then the consumer pauses it, and nobody is left to resume it.
    """

    def __init__(
        self, limits: FlowControl, *, pause: Callable[[], None], resume: Callable[[], None]
    ) -> None:
        self._limits = limits
        self._pause = pause
        self._resume = resume
        self._lock = threading.Lock()
        self._messages = 0
        self._bytes = 0
        self._paused = False

    @property
    def messages(self) -> int:
        return self._messages

    @property
    def bytes(self) -> int:
        return self._bytes

    @property
    def load(self) -> float:
        """The fuller of the two limits, 1.0 when it is reached."""
        return max(self._messages / self._limits.max_messages, self._bytes / self._limits.max_bytes)

    def add(self, messages: int, size: int) -> None:
        """Count received messages of `size` bytes in all."""
        with self._lock:
            self._messages += messages
            self._bytes += size
            # As `load >= 1.0`, but for less: this is done for each response.
            full = (
                self._messages >= self._limits.max_messages or self._bytes >= self._limits.max_bytes
            )
            if full and not self._paused:
                self._paused = True
                self._pause()

    def release(self, messages: int, size: int) -> None:
        """Count messages as finished."""
        with self._lock:
            self._messages -= messages
            self._bytes -= size
            if self._paused and self.load < RESUME_BELOW:
                self._paused = False
                self._resume()
