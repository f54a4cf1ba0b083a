"""The names of the official client's `pubsub_v1.subscriber.futures`."""

from pullstream.ack_future import AckFuture
from pullstream.futures import StreamingPullFuture

# The official client's name for the future of one acknowledgement.
Future = AckFuture

__all__ = ["Future", "StreamingPullFuture"]
