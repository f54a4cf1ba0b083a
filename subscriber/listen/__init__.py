"""Keyed channels: the subscriber's side, behind `SubscriberClient.listen`.

link.py   the state towards one publisher, without threads or calls
commands.py, retries.py   parts of it: commands in order; when to try again, when to give up
interest.py   one subscription      notices.py   what its user is told
channel_subscriber.py   the shell: calls, and the thread that owns them
callbacks.py            the thread on which users' functions run
"""

from .channel_subscriber import ChannelSubscriber
from .notices import ChannelFailure, ChannelMessage, Dropped, ListenEvent, Reset

__all__ = [
    "ChannelFailure",
    "ChannelMessage",
    "ChannelSubscriber",
    "Dropped",
    "ListenEvent",
    "Reset",
]
