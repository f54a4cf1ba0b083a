"""How long a call may wait before it is answered, with nothing if need be."""

from __future__ import annotations

from typing import Protocol

# A waiting call is answered this much before its caller's deadline, in seconds, so that an empty
# answer arrives before the deadline does. Measured on loaded machines: 100 ms is safe, 20 ms is
# not. Of a wait below a second it is a tenth.
ANSWER_MARGIN = 0.1

# gRPC rounds the deadline up on its way here, by as much as this part of it.
DEADLINE_ROUNDING = 0.01


class Call(Protocol):
    """So much of a gRPC servicer's context as is needed here."""

    def time_remaining(self) -> float | None: ...


def longest_wait(call: Call, maximum: float) -> float:
    """Seconds of real time, as gRPC deadlines are; `maximum` if the caller set no earlier one."""
    remaining = call.time_remaining()
    if remaining is None:
        return maximum
    margin = min(ANSWER_MARGIN + remaining * DEADLINE_ROUNDING, remaining / 10)
    return min(remaining - margin, maximum)
