"""The state of a running broker in numbers: counters, status, metrics, health."""

from .counters import Counters

__all__ = ["Counters"]
