"""How long a call may wait before it is answered, with nothing if need be."""

from __future__ import annotations

from .context import Context

# A waiting call is answered this much before its caller's deadline, in seconds, so that an empty
# answer arrives before the deadline does. Measured on loaded machines: 100 ms is safe, 20 ms is
# not. Of a wait below a second it is a tenth.
ANSWER_MARGIN = 0.1

# gRPC rounds the deadline up on its way here, by as much as this part of it.
DEADLINE_ROUNDING = 0.01


def longest_wait(context: Context, maximum: float) -> float:
    """Seconds of real time, as gRPC deadlines are; `maximum` if the caller set no earlier one."""
    remaining = context.time_remaining()
    if remaining is None:
        return maximum
    margin = min(ANSWER_MARGIN + remaining * DEADLINE_ROUNDING, remaining / 10)
    return min(remaining - margin, maximum)
