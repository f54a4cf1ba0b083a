"""Flow control of publishing: limits on the messages without a result."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .exceptions import FlowControlLimitError
from .settings import LimitExceededBehavior, PublishFlowControl


class PublishGauge:
    """Counts messages and bytes against limits. Not thread-safe: its owner has a lock.

    Messages that wait for room enter in the order in which they came.

    Args:
        limits: The limits. Their behavior is not IGNORE.
    """

    def __init__(self, limits: PublishFlowControl) -> None:
        self._limits = limits
        self._messages = 0
        self._bytes = 0
        self._waiting: deque[tuple[int, Callable[[], object]]] = deque()
        # Whether the owner runs the functions that `leave_in_order` has returned.
        self._is_admitting = False

    def enter(self, size: int, admit: Callable[[], object] | None) -> bool:
        """Count a message if there is room; otherwise wait, or raise.

        Args:
            size: Bytes of the message.
            admit: Called by `leave` when there is room and the message is counted. None: the
                message cannot wait.

        Returns:
            Whether the message is counted. If not, `admit` will be called.

        Raises:
            FlowControlLimitError: There is no room, and the behavior is ERROR or `admit` is None.
                Or the message alone is above the limit.
        """
        limits = self._limits
        if size > limits.byte_limit:
            raise FlowControlLimitError(
                f"a message of {size:,} bytes is above flow_control.byte_limit, which is "
                f"{limits.byte_limit:,}"
            )
        if not self._waiting and not self._is_admitting and self._has_room(size):
            self._count(1, size)
            return True
        if limits.limit_exceeded_behavior is LimitExceededBehavior.ERROR or admit is None:
            raise FlowControlLimitError(
                f"{self._messages:,} messages with {self._bytes:,} bytes wait for the server, and "
                f"flow control allows {limits.message_limit:,} and {limits.byte_limit:,} bytes"
            )
        self._waiting.append((size, admit))
        return False

    def leave(self, messages: int, size: int) -> list[Callable[[], object]]:
        """Remove messages that have a result, and admit waiting ones.

        Args:
            messages: Number of messages.
            size: Their bytes.

        Returns:
            The `admit` functions to call, in order, without the owner's lock.
        """
        self._count(-messages, -size)
        admitted = []
        while self._waiting and self._has_room(self._waiting[0][0]):
            waiting_size, admit = self._waiting.popleft()
            self._count(1, waiting_size)
            admitted.append(admit)
        return admitted

    def leave_in_order(self, messages: int, size: int) -> list[Callable[[], object]]:
        """Do the same as `leave`, and let no message enter before the functions have run.

        A message that entered meanwhile, or was admitted by another thread, would be published
        before them. So while one list is being run, this method returns no other, and messages
        that enter wait. After running a list, call `admitted`, until it returns an empty one.

        Args:
            messages: Number of messages.
            size: Their bytes.
        """
        if self._is_admitting:
            self._count(-messages, -size)
            return []
        admitted = self.leave(messages, size)
        self._is_admitting = bool(admitted)
        return admitted

    def admitted(self) -> list[Callable[[], object]]:
        """Record that the functions have run, and return the next ones."""
        self._is_admitting = False
        return self.leave_in_order(0, 0)

    def withdraw(self, admit: Callable[[], object]) -> bool:
        """Remove a waiting message; return whether it was still waiting.

        Args:
            admit: The function that was passed to `enter`.
        """
        for waiting in self._waiting:
            if waiting[1] == admit:
                self._waiting.remove(waiting)
                return True
        return False

    @property
    def waiting(self) -> int:
        """Number of messages that wait for room."""
        return len(self._waiting)

    @property
    def is_waited_for(self) -> bool:
        """Whether a message waits for room, or has just got it and is about to be published."""
        return self._is_admitting or bool(self._waiting)

    def abandon(self) -> list[Callable[[], object]]:
        """Count all waiting messages, because the publisher is closed, and return as `leave`."""
        admitted = []
        for size, admit in self._waiting:
            self._count(1, size)
            admitted.append(admit)
        self._waiting.clear()
        return admitted

    def _has_room(self, size: int) -> bool:
        return (
            self._messages < self._limits.message_limit
            and self._bytes + size <= self._limits.byte_limit
        )

    def _count(self, messages: int, size: int) -> None:
        self._messages += messages
        self._bytes += size
