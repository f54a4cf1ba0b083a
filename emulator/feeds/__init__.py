"""Topics as capped logs: windows, gaps, reads, watches and routers, without a wire.

Plain objects beside the engine, with the same owner (the broker's event loop, or a test). `Feeds`
is the face; time comes from the engine's clock, and nothing here waits.
"""

from .feed import Feed
from .feeds import Feeds
from .waiting import Waiting
from .watch import Stream, Watch

__all__ = ["Feed", "Feeds", "Stream", "Waiting", "Watch"]
