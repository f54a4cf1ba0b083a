"""Waiting time of long polls. They are answered before their deadline, even with no result."""

from __future__ import annotations

from typing import Protocol

# A waiting call is answered this long before its caller's deadline, in seconds, so that an empty
# answer arrives before the deadline. Measured on loaded machines: 100 ms is safe, 20 ms is not.
ANSWER_MARGIN = 0.1

# The part of a wait that the margin may take. It matters for waits of about a second, or less.
LARGEST_PART = 0.1

# gRPC rounds the deadline up on the wire, by up to this fraction of it.
DEADLINE_ROUNDING = 0.01


class LongPollCall(Protocol):
    """The part of a gRPC servicer's context that `longest_wait` uses."""

    def time_remaining(self) -> float | None:
        """Return the seconds until the caller's deadline; None if it set none."""


def longest_wait(call: LongPollCall, maximum: float) -> float:
    """Return how long a call may wait, in seconds of real time, as for gRPC deadlines.

    Args:
        call: The context of the call.
        maximum: The longest wait, used if the caller set no earlier deadline.
    """
    remaining = call.time_remaining()
    if remaining is None:
        return maximum
    margin = min(ANSWER_MARGIN + remaining * DEADLINE_ROUNDING, remaining * LARGEST_PART)
    return min(remaining - margin, maximum)
