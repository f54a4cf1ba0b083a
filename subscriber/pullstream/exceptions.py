"""Exceptions of the SDK, besides the errors of calls (`pullstream_protocol.errors`)."""

from __future__ import annotations

import builtins

# The error of `future.result(timeout=...)`, under its name in the official client.
from concurrent.futures import TimeoutError as TimeoutError
from enum import Enum

from google.api_core.exceptions import GoogleAPICallError

# The error of a call in a signal handler that would wait for the interrupted code.
from pullstream_protocol.call_lock import InterruptedCall as InterruptedCall
from pullstream_protocol.errors import PullstreamError


class AcknowledgeStatus(Enum):
    """Result of an ack, a nack or a deadline change. The values are the official client's."""

    SUCCESS = 1
    PERMISSION_DENIED = 2
    FAILED_PRECONDITION = 3
    INVALID_ACK_ID = 4
    OTHER = 5


class AcknowledgeError(PullstreamError, GoogleAPICallError):
    """The server has not confirmed an ack, a nack or a deadline change.

    Attributes:
        error_code: The AcknowledgeStatus.
        info: A description, or None.
        may_have_succeeded: Whether the request may have taken effect: it was sent, and the server
            has not answered, or has answered only a later attempt. If False, it was not sent, or
            the server refused it.
    """

    def __init__(
        self,
        error_code: AcknowledgeStatus,
        info: str | None = None,
        *,
        may_have_succeeded: bool = False,
    ) -> None:
        """Create the error.

        Args:
            error_code: The AcknowledgeStatus.
            info: A description. Default: None.
            may_have_succeeded: Whether the request may have taken effect. Default: False.
        """
        # The constructor in google-api-core has no annotations.
        super().__init__(info or error_code.name)  # type: ignore[no-untyped-call]
        self.error_code = error_code
        self.info = info
        self.may_have_succeeded = may_have_succeeded

    def __str__(self) -> str:
        return f"{self.error_code.name}: {self.info}" if self.info else self.error_code.name

    def __repr__(self) -> str:
        return f"AcknowledgeError({self.error_code}, {self.info!r})"


class PullTimeout(PullstreamError, builtins.TimeoutError):
    """`fetch` received no message within its time limit.

    Attributes:
        answered: Whether the server answered that it had no message. If False, there was no answer,
            so the cause may be the network.
    """

    def __init__(self, message: str, *, answered: bool) -> None:
        """Create the error.

        Args:
            message: The text of the error.
            answered: Whether the server answered that it had no message.
        """
        super().__init__(message)
        self.answered = answered


class SubscriberClosed(PullstreamError, RuntimeError):
    """A closed client was used."""


class ForkedProcess(PullstreamError, RuntimeError):
    """A client was used in another process than the one that created it.

    A fork copies neither the client's threads nor the state of its connection.
    """
