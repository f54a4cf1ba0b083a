"""What the SDK raises, beyond the errors of calls (protocol.errors)."""

from __future__ import annotations

import builtins
import os

# What `future.result(timeout=...)` raises, by the name that it has in the official client.
from concurrent.futures import TimeoutError as TimeoutError
from enum import Enum

from google.api_core.exceptions import GoogleAPICallError

from protocol.errors import PullstreamError


class AcknowledgeStatus(Enum):
    """How an ack, a nack or a deadline change ended. Values are the official client's."""

    SUCCESS = 1
    PERMISSION_DENIED = 2
    FAILED_PRECONDITION = 3
    INVALID_ACK_ID = 4
    OTHER = 5


class AcknowledgeError(PullstreamError, GoogleAPICallError):
    """The server did not take an acknowledgement, a nack or a deadline change.

    `error_code` is the AcknowledgeStatus, `info` says more in words.
    """

    def __init__(self, error_code: AcknowledgeStatus, info: str | None = None) -> None:
        # google-api-core's constructor ships without annotations.
        super().__init__(info or error_code.name)  # type: ignore[no-untyped-call]
        self.error_code = error_code
        self.info = info

    def __str__(self) -> str:
        return f"{self.error_code.name}: {self.info}" if self.info else self.error_code.name

    def __repr__(self) -> str:
        return f"AcknowledgeError({self.error_code}, {self.info!r})"


class PullTimeout(PullstreamError, builtins.TimeoutError):
    """`fetch` got no message in its time.

    answered: whether the server said that there was none. Otherwise nothing was heard of it, so the
        fault may lie in between.
    """

    def __init__(self, message: str, *, answered: bool) -> None:
        super().__init__(message)
        self.answered = answered


class SubscriberClosed(PullstreamError, RuntimeError):
    """Something was asked of a client that has been closed."""


class ForkedProcess(PullstreamError, RuntimeError):
    """A client was used in another process than the one that made it.

    A fork copies neither its threads nor the state of its connection.
    """


def forked(made_in: int) -> ForkedProcess:
    """The error for a client that was made in the process `made_in`."""
    return ForkedProcess(
        f"this client was made in process {made_in} and is used in process {os.getpid()}, after a "
        "fork, where it cannot work: make a new client in the new process"
    )
