"""Retry schedule for acknowledgements refused because of ordering."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pullstream.runtime.retry_clock import Backoff

# Pauses in seconds, the first and the longest. A server that names early acknowledgements is
# healthy, and only waits for the earlier acknowledgements of the same ordering key. So retry soon.
_WHILE_ANSWERED = (0.1, 1.0)
_WHILE_AWAY = (0.1, 30.0)


@dataclass(order=True)
class _FirstSent:
    """The position at which an acknowledgement was first sent.

    Attributes:
        number: Number of the request.
        index: Position in the request.
        give_up_at: When to stop retrying.
        may_have_succeeded: Whether an attempt may have taken effect.
    """

    number: int
    index: int
    give_up_at: float = field(compare=False)
    may_have_succeeded: bool = field(default=False, compare=False)


class OrderedAckRetry:
    """Early acknowledgements of one subscription, which are retried together. Not thread-safe.

    A subscription with exactly-once delivery and ordering keys accepts the acknowledgement of a
    message only with or after the acknowledgements of all earlier messages of its key. When one
    call fails, the server refuses all later acknowledgements of the key, which may be spread over
    many requests. If each of these requests were retried separately, with doubling pauses, a
    hundred of them would need a hundred pauses. In a single request, in the order in which they
    were first sent, all succeed as soon as the first one does.

    One such request is in flight at a time. Its acknowledgements stay here until the server has
    accepted them.
    """

    def __init__(self) -> None:
        self._first_sent: dict[str, _FirstSent] = {}
        self._under_way: Sequence[str] = ()
        self._due = math.inf
        self._while_answered = Backoff(*_WHILE_ANSWERED)
        self._while_away = Backoff(*_WHILE_AWAY)

    def __len__(self) -> int:
        return len(self._first_sent)

    @property
    def due(self) -> float:
        """Time of the next request; infinite while one is in flight, or if nothing waits."""
        return math.inf if self._under_way or not self._first_sent else self._due

    @property
    def unsent(self) -> int:
        """Number of waiting acknowledgements that are not in flight."""
        return len(self._first_sent) - len(self._under_way)

    @property
    def ack_ids(self) -> list[str]:
        """All waiting ack ids, in the order in which they were first sent."""
        return sorted(self._first_sent, key=self._first_sent.__getitem__)

    def add_refused(
        self,
        ack_ids: Iterable[str],
        number: int,
        now: float,
        give_up_at: float,
        *,
        may_have_succeeded: bool = False,
    ) -> int:
        """Add acknowledgements that the server refused as too early.

        Args:
            ack_ids: The refused ids, in the order of the request.
            number: Number of the request.
            now: The present time.
            give_up_at: When to stop retrying them.
            may_have_succeeded: Whether an earlier attempt may have taken effect. Default: False.

        Returns:
            How many of them are new.
        """
        before = len(self._first_sent)
        for index, ack_id in enumerate(ack_ids):
            first_sent = self._first_sent.setdefault(ack_id, _FirstSent(number, index, give_up_at))
            first_sent.may_have_succeeded |= may_have_succeeded
        if not before:
            self._due = now + self._while_answered.next_pause()
        return len(self._first_sent) - before

    def mark_sent(self, ack_ids: Sequence[str]) -> None:
        """Note that a request with these ack ids is in flight."""
        self._under_way = ack_ids

    @property
    def in_doubt(self) -> set[str]:
        """Ack ids for which an attempt may have taken effect."""
        return {
            ack_id
            for ack_id, first_sent in self._first_sent.items()
            if first_sent.may_have_succeeded
        }

    def record_answer(
        self, now: float, too_early: Iterable[str], in_doubt: Iterable[str], *, is_away: bool
    ) -> list[str]:
        """Record the end of the request in flight. Ids that are not in the arguments are removed.

        Args:
            now: The present time.
            too_early: Ack ids of the request that were refused as too early again.
            in_doubt: Ack ids of the request that must be sent again for another reason.
            is_away: Whether the call failed as a whole.

        Returns:
            Ack ids that were removed because their time is over.
        """
        staying = {*too_early, *in_doubt}
        for ack_id in in_doubt:
            self._first_sent[ack_id].may_have_succeeded = True
        ended = [ack_id for ack_id in self._under_way if ack_id not in staying]
        late = [ack_id for ack_id in staying if self._first_sent[ack_id].give_up_at <= now]
        if ended:
            self._while_answered.reset()
        if not is_away:
            self._while_away.reset()
        for ack_id in (*ended, *late):
            del self._first_sent[ack_id]
        self._under_way = ()
        pauses = self._while_away if is_away else self._while_answered
        self._due = now + pauses.next_pause()
        return late

    def clear(self) -> None:
        """Forget all acknowledgements."""
        self._first_sent.clear()
        self._under_way = ()
