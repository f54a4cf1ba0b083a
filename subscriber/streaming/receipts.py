"""Exactly-once delivery: messages wait here until the server has confirmed that they are ours."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable

from subscriber.message import Message


class _Group:
    """The messages of one response: those that are still to be confirmed, and those that are."""

    __slots__ = ("confirmed", "in_order", "open")

    def __init__(self, messages: list[Message], in_order: bool) -> None:
        self.confirmed = messages
        self.in_order = in_order
        self.open = len(messages)


class ReceiptGate:
    """Holds the messages of a response back until each of them is confirmed or refused.

    With exactly-once delivery an ack id is good for one delivery only. A message that waited too
    long on its way, in gRPC's buffer say, may be somebody else's by now; to handle it would be to
    handle it twice. So the server is asked about each (by a deadline change, whose answer names the
    ids that are over), and a callback sees only what is confirmed.

    Owns the groups behind one lock: the consumer's thread adds, the dispatcher's reports answers.
    A group waits for its own answers only, except that with ordering keys it also waits for those
    that came before it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: deque[_Group] = deque()
        # A list, because nothing forbids a server to deliver an id twice.
        self._by_id: dict[str, list[tuple[_Group, Message]]] = {}

    def __len__(self) -> int:
        with self._lock:
            return sum(len(group.confirmed) for group in self._groups)

    def add(self, messages: list[Message], *, in_order: bool) -> None:
        """Hold back the messages of one response, of which the server is about to be asked."""
        group = _Group(messages, in_order)
        with self._lock:
            self._groups.append(group)
            for message in messages:
                self._by_id.setdefault(message.ack_id, []).append((group, message))

    def answered(
        self, confirmed: Iterable[str], refused: Collection[str]
    ) -> tuple[list[tuple[list[Message], bool]], list[Message]]:
        """The server spoke. Returns what may go on, as (messages, whether in order) for each
        response, and the messages that are not ours."""
        lost: list[Message] = []
        with self._lock:
            for ack_id in confirmed:
                for group, _ in self._by_id.pop(ack_id, ()):
                    group.open -= 1
            for ack_id in refused:
                for group, message in self._by_id.pop(ack_id, ()):
                    group.open -= 1
                    group.confirmed = [one for one in group.confirmed if one is not message]
                    lost.append(message)
            return self._release(), lost

    def _release(self) -> list[tuple[list[Message], bool]]:
        released: list[tuple[list[Message], bool]] = []
        waiting: deque[_Group] = deque()
        for group in self._groups:
            if group.open or (waiting and group.in_order):
                waiting.append(group)
            elif group.confirmed:
                released.append((group.confirmed, group.in_order))
        self._groups = waiting
        return released
