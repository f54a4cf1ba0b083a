"""What the official client has in `pubsub_v1.subscriber`, under the names that it has there.

Its samples annotate callbacks with `pubsub_v1.subscriber.message.Message`; after
`import subscriber as pubsub_v1` that is found here.
"""

from . import exceptions, futures, message, scheduler, types
from .client import SubscriberClient as Client

__all__ = ["Client", "exceptions", "futures", "message", "scheduler", "types"]
