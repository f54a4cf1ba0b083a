"""Keyed channels: the subscriber's side, behind `SubscriberClient.listen`.

session.py              the session with one publisher: pure logic, without threads or calls
commands.py             part of the session: commands in order
subscription.py         one subscription to a key or a channel
events.py               messages and events for the user
channel_subscriber.py   the public class
session_thread.py       the thread that makes the calls
callbacks.py            the thread that runs the user's functions
"""

from .channel_subscriber import ChannelSubscriber
from .events import ChannelFailure, ChannelMessage, Dropped, ListenEvent, Reset

__all__ = [
    "ChannelFailure",
    "ChannelMessage",
    "ChannelSubscriber",
    "Dropped",
    "ListenEvent",
    "Reset",
]
