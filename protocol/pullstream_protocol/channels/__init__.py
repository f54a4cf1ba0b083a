"""Keyed channels: the publisher's side, for any gRPC server.

core.py             all state as one plain object: sessions, interests, numbers, time
session.py          one subscriber: its mailbox and its poll
mailbox.py          items that a subscriber has not acknowledged
index.py            the subscribers of each channel and key
limits.py           limits, and checks of requests
shared_core.py      the core under a lock
publisher.py        ChannelPublisher: the public class
handlers.py         gRPC handlers for an event loop
thread_handlers.py, poll_responder.py
                    gRPC handlers for threads; waiting polls use no thread
"""

from .limits import ChannelLimits
from .publisher import ChannelPublisher
from .statistics import ChannelStatistics

__all__ = ["ChannelLimits", "ChannelPublisher", "ChannelStatistics"]
