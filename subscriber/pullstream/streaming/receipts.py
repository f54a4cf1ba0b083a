"""Exactly-once delivery: holds messages until the server has confirmed their receipts."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable

from pullstream.message import Message


class _Group:
    """The messages of one response, without the refused ones.

    Attributes:
        confirmed: Messages that are not refused.
        in_order: Whether the group must wait for earlier groups.
        open: Number of messages without an answer.
    """

    __slots__ = ("confirmed", "in_order", "open")

    def __init__(self, messages: list[Message], in_order: bool) -> None:
        # A dict used as an ordered set.
        self.confirmed = dict.fromkeys(messages)
        self.in_order = in_order
        self.open = len(messages)


class ReceiptGate:
    """Holds the messages of a response until each of them is confirmed or refused.

    With exactly-once delivery an ack id is valid for one delivery only. A message that was delayed
    on its way, for example in gRPC's buffer, may have been redelivered to another subscriber, and
    would be handled twice. So the client sends a receipt for each message: a deadline change, whose
    answer names the ack ids that are no longer valid. Callbacks see only confirmed messages.

    Owns the groups, behind one lock: the consumer's thread adds groups, the dispatcher's thread
    reports answers. A group waits only for the answers to its receipts. With ordering keys it also
    waits for earlier groups.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: deque[_Group] = deque()
        # A list, because a server may deliver an ack id twice.
        self._by_id: dict[str, list[tuple[_Group, Message]]] = {}

    def __len__(self) -> int:
        with self._lock:
            return sum(len(group.confirmed) for group in self._groups)

    def hold_messages(self, messages: list[Message], *, in_order: bool) -> None:
        """Hold the messages of one response, whose receipts are about to be sent."""
        group = _Group(messages, in_order)
        with self._lock:
            self._groups.append(group)
            for message in messages:
                self._by_id.setdefault(message.ack_id, []).append((group, message))

    def record_answer(
        self, confirmed: Iterable[str], refused: Collection[str]
    ) -> tuple[list[tuple[list[Message], bool]], list[Message]]:
        """Process the answer to receipts.

        Returns:
            The released messages as (messages, whether in order) for each response; and the refused
            messages.
        """
        lost: list[Message] = []
        answered: dict[_Group, None] = {}
        with self._lock:
            for ack_id in confirmed:
                for group, _ in self._by_id.pop(ack_id, ()):
                    group.open -= 1
                    answered[group] = None
            for ack_id in refused:
                for group, message in self._by_id.pop(ack_id, ()):
                    group.open -= 1
                    answered[group] = None
                    del group.confirmed[message]
                    lost.append(message)
            return self._release(answered), lost

    def _release(self, answered: Iterable[_Group]) -> list[tuple[list[Message], bool]]:
        """Return the messages of groups that may go on.

        Args:
            answered: Groups that have just got an answer.
        """
        going = [group for group in answered if not (group.open or group.in_order)]
        # The others go on from the front. A group without order may have gone on earlier.
        while self._groups and not self._groups[0].open:
            first = self._groups.popleft()
            if first.in_order:
                going.append(first)
        released = [(list(group.confirmed), group.in_order) for group in going if group.confirmed]
        for group in going:
            group.confirmed.clear()
        return released
