"""Flow control: the limits on outstanding messages, and the gauge that measures them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pullstream_protocol.call_lock import CallLock

from .runtime.validation import require_number, require_positive

MIN_EXTENSION = 10
MAX_EXTENSION = 600

# The stream is paused when the load reaches 1.0, and resumed when the load is below this value. The
# difference avoids a quick alternation between the two.
RESUME_BELOW = 0.8


class FlowControl(NamedTuple):
    """Limits of one subscription. The names and defaults are the official client's.

    `max_redelivery_wait` is an addition.

    Attributes:
        max_bytes: Bytes of outstanding messages. A single larger message is still accepted.
            Default: 100 MiB.
        max_messages: Number of outstanding messages. Includes messages that run, wait for a worker,
            or are held for their ordering key. Messages that are held behind a failed message of
            their key do not count; in addition, up to `max_messages` of them may be held. Default:
            1000.
        max_lease_duration: Seconds after the receipt of a message for which its lease is extended.
            After that, the SDK gives the message up, and the server redelivers it. Default: 3600.
        min_duration_per_lease_extension: Shortest lease extension in seconds, 10 to 600. 0
            (default): the SDK derives it from the time that callbacks take.
        max_duration_per_lease_extension: Longest lease extension in seconds, 10 to 600. 0
            (default): as for the shortest.
        max_redelivery_wait: Seconds to hold the later messages of an ordering key after a failure,
            while waiting for the redelivery of the failed message. After that, they are returned to
            the server. None (default): 60 seconds until the first redelivery; from then on three
            times the slowest of the recent redeliveries, and at least 5 seconds.
    """

    max_bytes: int = 100 * 1024 * 1024
    max_messages: int = 1000
    max_lease_duration: float = 60 * 60
    min_duration_per_lease_extension: float = 0
    max_duration_per_lease_extension: float = 0
    max_redelivery_wait: float | None = None

    def checked(self) -> FlowControl:
        """Return self if every value is valid.

        Raises:
            TypeError, ValueError: A value has the wrong type or is out of range. The text names the
                field.
        """
        for name in ("max_bytes", "max_messages"):
            require_positive(name, getattr(self, name))
        if require_number("max_lease_duration", self.max_lease_duration) <= 0:
            raise ValueError(f"max_lease_duration is {self.max_lease_duration}; it must be above 0")
        for name in ("min_duration_per_lease_extension", "max_duration_per_lease_extension"):
            value = require_number(name, getattr(self, name))
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
        wait = self.max_redelivery_wait
        if wait is not None and require_number("max_redelivery_wait", wait) < 0:
            raise ValueError(f"max_redelivery_wait is {wait}; it must be 0 or more, or None")
        return self


def limits_of(flow_control: FlowControl | tuple[Any, ...]) -> FlowControl:
    """Convert a user's `flow_control` argument to a checked FlowControl.

    Args:
        flow_control: A FlowControl, or a tuple or list with the first of its values.

    Raises:
        TypeError, ValueError: The argument has another type, or one of its values is invalid.
    """
    if not isinstance(flow_control, (tuple, list)):
        raise TypeError(f"flow_control is {flow_control!r}; it must be a FlowControl")
    return FlowControl(*flow_control).checked()


class LoadGauge:
    """Counts outstanding messages, and pauses the stream while there are too many.

    Owns the counters. The consumer's thread adds and the dispatcher's thread releases. Each call
    takes a whole batch, so the lock is taken once per response and once per batch of settled
    messages. Parked messages, which wait behind a failed message of their ordering key, are counted
    but are not part of the load.

    `pause` and `resume` are called under the lock, and must not call back. Without the lock, the
    following could happen. The consumer finds that the load is too high. The dispatcher releases
    all of it and resumes the stream, which is still running. Then the consumer pauses the stream,
    and nothing resumes it.

    Attributes:
        messages: Number of outstanding messages.
        bytes: Bytes of outstanding messages.
    """

    def __init__(
        self, limits: FlowControl, *, pause: Callable[[], None], resume: Callable[[], None]
    ) -> None:
        self._limits = limits
        self._pause = pause
        self._resume = resume
        self._lock = CallLock()
        self.messages: int = 0
        self.bytes: int = 0
        self._parked = 0
        self._parked_bytes = 0
        self._paused = False

    @property
    def load(self) -> float:
        """The load: the fuller one of the two limits. 1.0 means that it is reached."""
        return max(
            (self.messages - self._parked) / self._limits.max_messages,
            (self.bytes - self._parked_bytes) / self._limits.max_bytes,
        )

    def add_load(self, messages: int, size: int) -> None:
        """Count received messages.

        Args:
            messages: Number of messages.
            size: Bytes of all of them.
        """
        with self._lock.once:
            self.messages += messages
            self.bytes += size
            self._check()

    def release_load(self, messages: int, size: int) -> None:
        """Count messages as settled.

        Args:
            messages: Number of messages.
            size: Bytes of all of them.
        """
        with self._lock.once:
            self.messages -= messages
            self.bytes -= size
            self._check()

    def park_load(self, messages: int, size: int) -> None:
        """Count received messages as parked; negative numbers count them as no longer parked.

        Args:
            messages: Number of messages.
            size: Bytes of all of them.
        """
        with self._lock.once:
            self._parked += messages
            self._parked_bytes += size
            self._check()

    def _check(self) -> None:
        if self._paused:
            if self.load < RESUME_BELOW:
                self._paused = False
                self._resume()
        # The same as `load >= 1.0`, but faster, because this runs for each response.
        elif (
            self.messages - self._parked >= self._limits.max_messages
            or self.bytes - self._parked_bytes >= self._limits.max_bytes
        ):
            self._paused = True
            self._pause()
