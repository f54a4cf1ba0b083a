"""The names of the official client's `pubsub_v1.subscriber.message`."""

from pullstream.message import Message

__all__ = ["Message"]
