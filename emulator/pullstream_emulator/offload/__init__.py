"""Budgets for one step of the event loop, and worker processes for calls that exceed them.

A call with little work runs in one step on the event loop. `Budget` limits that step. A
`ProcessPool` has processes for the other calls. A thread would not help: one call of json or
protobuf holds the interpreter's lock for up to a second.
"""

from .budget import LOOP_BUDGET, MAX_WRITTEN, Budget, BudgetExceeded, json_cost
from .offloaded import Offloaded
from .pool import ProcessPool

__all__ = [
    "LOOP_BUDGET",
    "MAX_WRITTEN",
    "Budget",
    "BudgetExceeded",
    "Offloaded",
    "ProcessPool",
    "json_cost",
]
