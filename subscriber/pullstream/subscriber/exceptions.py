"""The names of the official client's `pubsub_v1.subscriber.exceptions`."""

from pullstream.exceptions import AcknowledgeError, AcknowledgeStatus, TimeoutError

__all__ = ["AcknowledgeError", "AcknowledgeStatus", "TimeoutError"]
