"""The names of the official client's `pubsub_v1.publisher.futures`."""

from .outcome import PublishFuture

Future = PublishFuture

__all__ = ["Future"]
