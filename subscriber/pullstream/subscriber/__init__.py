"""The modules and names of the official client's `pubsub_v1.subscriber`.

The official samples annotate callbacks with `pubsub_v1.subscriber.message.Message`. After `import
pullstream as pubsub_v1`, this package provides that name.
"""

from . import client, exceptions, futures, message, scheduler, types
from .client import Client

__all__ = ["Client", "client", "exceptions", "futures", "message", "scheduler", "types"]
