"""The future of an acknowledgement whose result the server confirms."""

from __future__ import annotations

from .exceptions import AcknowledgeStatus
from .runtime.process import InterruptibleFuture


class AckFuture(InterruptibleFuture[AcknowledgeStatus]):
    """The result of `ack_with_response()` or of another `..._with_response()` method.

    `result()` returns `AcknowledgeStatus.SUCCESS` once the server has confirmed the request, and
    raises AcknowledgeError if the request failed. The future always resolves, at the latest when
    the subscription is shut down. It cannot be cancelled, because the request is on its way. Done
    callbacks must be short: the thread that runs them also processes the other acknowledgements.
    """

    def _waits_for(self) -> str:
        """Return that the server's answer is missing."""
        return "the server has not confirmed the request yet; it is retried"

    def cancel(self) -> bool:
        """Return False: the request is on its way and cannot be cancelled."""
        return False
