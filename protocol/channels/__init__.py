"""Keyed channels: the publisher's side, for any gRPC server.

hub.py        all state as one plain object: sessions, interests, numbers, time
session.py    one subscriber: its mailbox and its poll       mailbox.py   what is not acknowledged
index.py      who wants what        item.py   what is published, encoded once
few.py        small sets     limits.py, checks.py   bounds
publisher.py  ChannelPublisher: the hub under a lock; its shells:
handlers.py   gRPC on an event loop    sweeper.py   the timer
thread_handlers.py, answerer.py, parking.py   gRPC on threads, of which none waits
"""

from .handlers import long_poll
from .hub import Hub
from .limits import ChannelLimits
from .publisher import ChannelPublisher
from .statistics import ChannelStatistics

__all__ = ["ChannelLimits", "ChannelPublisher", "ChannelStatistics", "Hub", "long_poll"]
