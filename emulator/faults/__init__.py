"""Faults that a test may ask of the broker: see `Faults`, and docs/faults.md."""

from .call import Call, StreamClosed
from .fault import Fault
from .faults import Faults

__all__ = ["Call", "Fault", "Faults", "StreamClosed"]
