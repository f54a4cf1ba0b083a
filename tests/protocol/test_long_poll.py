"""Waiting time of long polls."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pullstream_protocol.long_poll import longest_wait


@dataclass
class Call:
    remaining: float | None

    def time_remaining(self) -> float | None:
        return self.remaining


@pytest.mark.parametrize(
    ("remaining", "wait"),
    [
        # A tenth of short waits.
        (0.3, 0.27),
        (1.0, 0.9),
        # A tenth of a second and the rounding of the deadline.
        (2.0, 1.88),
        (20.0, 19.7),
        # As the caller's deadline does not matter.
        (4000.0, 60.0),
        (None, 60.0),
    ],
)
def test_a_waiting_call_is_answered_a_margin_before_the_deadline_of_its_caller(
    remaining: float | None, wait: float
) -> None:
    """The margin lets an empty answer arrive in time."""
    assert longest_wait(Call(remaining), 60.0) == pytest.approx(wait)
