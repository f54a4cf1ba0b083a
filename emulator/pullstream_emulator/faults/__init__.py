"""Faults that a test can set in the broker: see `Faults`, and docs/faults.md."""

from .fault import Fault, FaultedCall, StreamClosed
from .faults import Faults

__all__ = ["Fault", "FaultedCall", "Faults", "StreamClosed"]
