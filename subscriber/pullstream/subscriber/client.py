"""The name of the official client's `pubsub_v1.subscriber.client`."""

from pullstream.client import SubscriberClient

Client = SubscriberClient

__all__ = ["Client"]
