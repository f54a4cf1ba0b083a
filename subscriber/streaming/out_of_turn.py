"""Acknowledgements that are refused until those of earlier messages of their keys are through."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .backoff import Backoff

# Pauses in seconds, the first and the longest. A server that names what is too early is well: what
# stands before that may be through in no time.
_WHILE_ANSWERED = (0.1, 1.0)
_WHILE_AWAY = (0.1, 30.0)


@dataclass(order=True)
class _Place:
    """Where an acknowledgement stands: in which request, and where in it, it was first sent."""

    number: int
    index: int
    give_up_at: float = field(compare=False)


class OutOfTurn:
    """Those of one subscription, to be sent again together. Not thread-safe.

    A subscription with exactly-once delivery and ordering keys takes the acknowledgement of a
    message with or after those of all earlier ones of its key. When one call fails, all that were
    sent behind it are refused, in as many requests as they came in. If each of these were tried
    again by itself, with pauses that double, a hundred would be through in a hundred pauses. In one
    request, in the order in which they were first sent, they are as soon as the first of them is.

    One such request is under way at a time; what it holds stays here until the server took it.
    """

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}
        self._under_way: Sequence[str] = ()
        self._due = math.inf
        self._while_answered = Backoff(*_WHILE_ANSWERED)
        self._while_away = Backoff(*_WHILE_AWAY)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def due(self) -> float:
        """When they are to be sent; infinite while they are, or if there are none."""
        return math.inf if self._under_way or not self._places else self._due

    @property
    def unsent(self) -> int:
        """How many are here and not under way."""
        return len(self._places) - len(self._under_way)

    @property
    def ack_ids(self) -> list[str]:
        """All of them, in order."""
        return sorted(self._places, key=self._places.__getitem__)

    def add(self, ack_ids: Iterable[str], number: int, now: float, give_up_at: float) -> int:
        """The server refused these of the request with that number; returns how many are new."""
        before = len(self._places)
        for index, ack_id in enumerate(ack_ids):
            self._places.setdefault(ack_id, _Place(number, index, give_up_at))
        if not before:
            self._due = now + self._while_answered.next_pause()
        return len(self._places) - before

    def sent(self, ack_ids: Sequence[str]) -> None:
        """The first of `ack_ids` are under way, as many as fit into a request."""
        self._under_way = ack_ids

    def answered(self, now: float, stay: Iterable[str], *, is_away: bool) -> list[str]:
        """The server spoke, or could not; returns those that stay no longer, as their time is over.

        Args:
            stay: those of the request that are to be sent again. The others leave.
            is_away: whether the call failed as a whole.
        """
        staying = set(stay)
        gone = [ack_id for ack_id in self._under_way if ack_id not in staying]
        late = [ack_id for ack_id in staying if self._places[ack_id].give_up_at <= now]
        if gone:
            self._while_answered.reset()
        if not is_away:
            self._while_away.reset()
        for ack_id in (*gone, *late):
            del self._places[ack_id]
        self._under_way = ()
        pauses = self._while_away if is_away else self._while_answered
        self._due = now + pauses.next_pause()
        return late

    def clear(self) -> None:
        """Forget all."""
        self._places.clear()
        self._under_way = ()
