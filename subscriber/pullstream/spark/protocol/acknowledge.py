"""The two times at which receivers acknowledge messages."""

from __future__ import annotations

from enum import Enum


class Acknowledge(Enum):
    """When a receiver acknowledges its messages.

    COMMITTED: when their batch is in the engine's commit log. STORED: when their segment is in
    the storage, which then has the only copy.
    """

    COMMITTED = "committed"
    STORED = "stored"
