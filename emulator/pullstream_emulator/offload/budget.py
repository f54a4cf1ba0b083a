"""The budget of work for one step on the event loop."""

from __future__ import annotations

import sys

# One unit of work takes at most about a microsecond, so this is at most about 20 ms.
LOOP_BUDGET = 20_000

# The most expensive texts of 9 MB took up to 5 units for a value and 1/50 unit for a byte.
_COST_OF_VALUE = 5
_BYTES_PER_UNIT = 50


# A message of at most this many bytes is converted to JSON within the budget.
MAX_WRITTEN = 64 * 1024


class BudgetExceeded(Exception):
    """There is more work than the budget allows. Nothing was changed."""


class Budget:
    """Units of work that may be done; unlimited by default.

    Attributes:
        left: The number of units left.
    """

    __slots__ = ("left",)

    def __init__(self, units: int = sys.maxsize) -> None:
        self.left = units

    def spend(self, units: int) -> None:
        """Take `units` before the work is done.

        Raises:
            BudgetExceeded: Fewer units are left.
        """
        self.left -= units
        if self.left < 0:
            raise BudgetExceeded


def json_cost(text: bytes) -> int:
    """Return the most units that parsing a JSON text and converting its values may take."""
    cost = len(text) // _BYTES_PER_UNIT
    if cost > LOOP_BUDGET:
        # Not worth counting.
        return cost
    # Each value but the first follows one of these.
    return cost + _COST_OF_VALUE * (text.count(b",") + text.count(b":") + text.count(b"["))
