"""Feeds: topics as capped logs, with windows, gaps, reads, watches and routers.

This package does no I/O. Its objects have the same owner as the engine: the broker's event loop,
or a test. `Feeds` is the entry point. Time comes from the engine's clock, and no method waits.
"""

from .feed import Feed
from .feeds import Feeds
from .read import ReadWait
from .watch import WatchSession, WatchStream

__all__ = ["Feed", "Feeds", "ReadWait", "WatchSession", "WatchStream"]
