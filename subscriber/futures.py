"""The two futures a user holds: of a whole subscription, and of one acknowledgement."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from .exceptions import AcknowledgeStatus


class AckFuture(Future[AcknowledgeStatus]):
    """The outcome of `ack_with_response()` and its like.

    `result()` returns AcknowledgeStatus.SUCCESS once the server has said so, and raises
    AcknowledgeError otherwise. It always resolves, at the latest when the subscription is shut
    down. It cannot be cancelled: the request is on its way. Done callbacks should be short: the
    thread that runs them has the other acknowledgements to see to.
    """

    def cancel(self) -> bool:
        return False


class StreamingPullFuture(Future[bool]):
    """A running subscription.

    `result()` blocks until the subscription is shut down: it returns True when the user asked for
    it, and raises the error that ended the stream otherwise. Callbacks that raise do not end it.
    """

    def __init__(self, cancel: Callable[[], None]) -> None:
        super().__init__()
        self._request_shutdown = cancel
        self._cancelled = False

    def cancel(self) -> bool:
        """Begin the shutdown and return at once; `result()` tells when it is over.

        Messages whose callback has not begun are nacked. Safe from any thread, also from inside a
        callback, and more than once. Returns True, as the official client does.
        """
        self._cancelled = True
        self._request_shutdown()
        return True

    def cancelled(self) -> bool:
        """Whether `cancel()` was called. The future is still `running()` until all is shut down."""
        return self._cancelled

    def running(self) -> bool:
        return not self.done()

    def set_running_or_notify_cancel(self) -> bool:
        """Not for this future, which is running from the first."""
        raise NotImplementedError("a subscription is running as soon as its future exists")
