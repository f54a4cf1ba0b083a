"""The modules and names of the official client's `pubsub_v1.subscriber`.

The official samples annotate callbacks with `pubsub_v1.subscriber.message.Message`. After `import
pullstream as pubsub_v1`, this package provides that name.
"""

from pullstream.client import SubscriberClient as Client

from . import exceptions, futures, message, scheduler, types

__all__ = ["Client", "exceptions", "futures", "message", "scheduler", "types"]
