"""Errors of publishing. Those of the official client have its names and base classes."""

from __future__ import annotations

# The error of `future.result(timeout=...)`, under its name in the official client.
from concurrent.futures import TimeoutError as TimeoutError

from pullstream.publish_error import PublishError as PublishError
from pullstream_protocol.errors import PullstreamError


class MessageTooLargeError(PullstreamError, ValueError):
    """A message is larger than the server accepts. It was not sent."""


class PublishToPausedOrderingKeyException(PullstreamError):
    """An ordering key is paused because an earlier message of it was not published.

    The message was not sent. `PublisherClient.resume_publish` resumes the key.

    Attributes:
        ordering_key: The key.
    """

    def __init__(self, ordering_key: str, cause: BaseException | None = None) -> None:
        """Create the error.

        Args:
            ordering_key: The key.
            cause: The error of the earlier message.
        """
        because = f" ({cause})" if cause else ""
        super().__init__(
            f"ordering key {ordering_key!r} is paused because an earlier message of the key was "
            f"not published{because}; call resume_publish to continue with it"
        )
        self.ordering_key = ordering_key


class FlowControlLimitError(PullstreamError):
    """The limits of PublishFlowControl leave no room for a message. It was not sent."""


class PublisherClosed(PullstreamError, RuntimeError):
    """A closed publisher was used, or was closed before the server confirmed a message."""
