"""The history of a broker, for tests to assert on: see `History`, and docs/testing.md."""

from .event import Event, Kind, MessageHistory
from .history import DEFAULT_LIMIT, History

__all__ = ["DEFAULT_LIMIT", "Event", "History", "Kind", "MessageHistory"]
