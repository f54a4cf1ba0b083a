"""The rules of what is sent to the server about messages: batching, budgets, retries.

No thread, no gRPC: outcomes come in, requests come out, answers come back.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from protocol.errors import RpcError
from subscriber.exceptions import AcknowledgeError, AcknowledgeStatus
from subscriber.futures import AckFuture

from .keeper import Keeper
from .out_of_turn import OutOfTurn
from .requests import ACK, ACK_RETRY_FOR, Purpose, Request, new_backoff, retry_for
from .verdicts import Answer, read_answer

_log = logging.getLogger("pullstream.outbox")

# The server takes 512 KiB a request (https://cloud.google.com/pubsub/quotas); ack ids may be long.
MAX_REQUEST_BYTES = 450_000
MAX_IDS = 2_500

_ID_FRAMING = 4


_ACKS = (ACK, Purpose.ASKED)


class Outbox:
    """What waits to be sent, what is to be sent again and when, and who wants to know the result.

    Not thread-safe. Times are seconds on one monotonic clock. Every future that comes in is
    resolved: by the server's answer, at the end of the retries, or by `abandon`.

    Acknowledgements and deadline changes have a lane each, so that one goes on while the other is
    full: leases end also while the server takes no acknowledgements.

    Args:
        keep_for: seconds by which the leases of what is acknowledged without an answer are
            extended, again and again. 0: they are not.
    """

    def __init__(self, *, keep_for: int = 0) -> None:
        self._keeper = Keeper(keep_for) if keep_for else None
        # (seconds or ACK, what for) -> ids, in the order in which they came.
        self._pending: dict[tuple[int, Purpose], list[str]] = {}
        # By lane: whether it is that of acknowledgements.
        self._retries: dict[bool, list[tuple[float, int, Request]]] = {True: [], False: []}
        self._numbers = itertools.count()
        # Acknowledgements that are to be sent again when earlier ones are through.
        self._out_of_turn = OutOfTurn()
        self._futures: dict[tuple[int, Purpose, str], list[AckFuture]] = {}
        # Acknowledgements that came in and that no answer has settled.
        self.unanswered: int = 0

    @property
    def is_empty(self) -> bool:
        """Nothing waits to be sent, now or later."""
        return not (self._pending or self._out_of_turn or any(self._retries.values()))

    @property
    def has_somebody_waiting(self) -> bool:
        """Whether a future is to be resolved."""
        return bool(self._futures)

    def add(self, seconds: int, ack_ids: Iterable[str], purpose: Purpose = Purpose.ASKED) -> None:
        """Acknowledge (ACK), or let the leases end `seconds` from when it is sent."""
        waiting = self._pending.setdefault((seconds, purpose), [])
        before = len(waiting)
        waiting.extend(ack_ids)
        if seconds == ACK:
            self.unanswered += len(waiting) - before

    def track(
        self, seconds: int, ack_id: str, future: AckFuture, purpose: Purpose = Purpose.ASKED
    ) -> None:
        """Resolve `future` with the outcome for one id of the same kind, added before or after."""
        self._futures.setdefault((seconds, purpose, ack_id), []).append(future)

    def next_request(
        self, now: float, *, acks: bool = True, changes: bool = True
    ) -> Request | None:
        """The next request to send, within the budgets; None if nothing is to be sent now.

        Args:
            acks, changes: the lanes that are open.
        """
        if self._keeper is not None:
            unsent = () if acks else self._pending.get(_ACKS, ())
            # All at once, as `add` changes what is looked through.
            for ack_ids in list(self._keeper.to_keep(now, unsent)):
                self.add(self._keeper.seconds, ack_ids, Purpose.KEEP)
        request = (
            self._next_retry(now, acks, changes)
            or self._next_out_of_turn(now, acks)
            or self._next_pending(now, acks, changes)
        )
        if request is not None:
            request.sent_at = now
            if self._keeper is not None and request.is_ack and not request.out_of_turn:
                self._keeper.begin(request, now)
        return request

    def _next_out_of_turn(self, now: float, acks: bool) -> Request | None:
        if not acks or now < self._out_of_turn.due:
            return None
        ack_ids = self._out_of_turn.ack_ids
        request = Request(ACK, ack_ids[: _fitting(ack_ids)], math.inf, out_of_turn=True)
        self._out_of_turn.sent(request.ack_ids)
        return request

    def _next_retry(self, now: float, acks: bool, changes: bool) -> Request | None:
        for retries in self._waiting_in(acks, changes):
            if retries[0][0] <= now:
                return heapq.heappop(retries)[2]
        return None

    def _waiting_in(self, acks: bool, changes: bool) -> list[list[tuple[float, int, Request]]]:
        """The retries of each lane that is open and has any."""
        lanes = ((changes, self._retries[False]), (acks, self._retries[True]))
        return [retries for is_open, retries in lanes if is_open and retries]

    def _next_pending(self, now: float, acks: bool, changes: bool) -> Request | None:
        for kind, ack_ids in self._pending.items():
            seconds, purpose = kind
            if not (acks if seconds == ACK else changes):
                continue
            fitting = _fitting(ack_ids)
            request = Request(
                seconds, ack_ids[:fitting], now + retry_for(seconds, purpose), purpose
            )
            request.number = next(self._numbers)
            rest = ack_ids[fitting:]
            # Taken out and put in again: kinds of requests take turns.
            del self._pending[kind]
            if rest:
                self._pending[kind] = rest
            return request
        return None

    def next_due(self, *, acks: bool = True, changes: bool = True) -> float | None:
        """When there is something to send again in a lane that is open; None if there is nothing.

        Or when leases are to be kept.
        """
        times = [retries[0][0] for retries in self._waiting_in(acks, changes)]
        if acks:
            times.append(self._out_of_turn.due)
        if changes and self._keeper is not None:
            times.append(self._keeper.due())
        due = min(times, default=math.inf)
        return None if due == math.inf else due

    def answered(self, request: Request, error: RpcError | None, now: float) -> Answer:
        """A call ended. Resolves futures, arranges what is to be sent again, and tells what failed
        for good: `retry` and `split` of the answer are empty unless they will really be sent."""
        if request.purpose is Purpose.KEEP:
            return Answer()
        answer = read_answer(request.ack_ids, error)
        asked = len(request.ack_ids)
        if not request.is_ack:
            # Leases have no order.
            answer.retry += answer.too_early
            answer.too_early = []
        if self._futures:
            for ack_id in answer.succeeded:
                self._resolve(request, ack_id, None)
        self._split(request, answer.split, now)
        if request.out_of_turn:
            staying = self._stay_out_of_turn(answer, error, now)
        else:
            staying = self._try_again(request, answer, error, now)
        for ack_id, failure in answer.failed.items():
            self._resolve(request, ack_id, failure)
        if request.is_ack:
            self.unanswered -= asked - staying - len(answer.split)
        return answer

    def _split(self, request: Request, ack_ids: list[str], now: float) -> None:
        if not ack_ids:
            return
        half = len(ack_ids) // 2
        for part in (ack_ids[:half], ack_ids[half:]):
            smaller = replace(request, ack_ids=part, backoff=new_backoff(), out_of_turn=False)
            if request.out_of_turn:
                smaller.give_up_at = now + ACK_RETRY_FOR
            self._send_at(now, smaller)

    def _try_again(
        self, request: Request, answer: Answer, error: RpcError | None, now: float
    ) -> int:
        """Returns how many ids will be sent again."""
        if answer.retry:
            again = now + request.backoff.next_pause()
            if again < request.give_up_at:
                request.ack_ids = answer.retry
                self._send_at(again, request)
            else:
                _time_is_over(answer, answer.retry, error)
                answer.retry = []
        if self._keeper is not None and not answer.retry:
            self._keeper.end(request)
        staying = len(answer.retry)
        if answer.too_early:
            staying += self._out_of_turn.add(
                answer.too_early, request.number, now, request.give_up_at
            )
            if self._keeper is not None:
                self._keeper.joined(self._out_of_turn, now)
        return staying

    def _stay_out_of_turn(self, answer: Answer, error: RpcError | None, now: float) -> int:
        again = answer.retry + answer.too_early
        late = self._out_of_turn.answered(now, again, is_away=bool(answer.retry))
        _time_is_over(answer, late, error)
        if self._keeper is not None and not self._out_of_turn:
            self._keeper.end(self._out_of_turn)
        return len(again) - len(late)

    def refused(self, request: Request, info: str) -> Answer:
        """A call could not even be begun, and no other will be. Resolves futures."""
        failure = AcknowledgeError(AcknowledgeStatus.OTHER, info)
        answer = Answer(failed=dict.fromkeys(request.ack_ids, failure))
        if request.out_of_turn:
            self._out_of_turn.answered(request.sent_at, (), is_away=True)
        elif self._keeper is not None:
            self._keeper.end(request)
        for ack_id in answer.failed:
            self._resolve(request, ack_id, failure)
        if request.is_ack:
            self.unanswered -= len(request.ack_ids)
        return answer

    def abandon(self, info: str) -> int:
        """Send nothing any more; returns how many outcomes the server was not told of."""
        unsent = sum(
            len(ids) for (_, purpose), ids in self._pending.items() if purpose is not Purpose.KEEP
        )
        unsent += self._out_of_turn.unsent
        self._out_of_turn.clear()
        self._pending.clear()
        if self._keeper is not None:
            self._keeper.clear()
        for retries in self._retries.values():
            unsent += sum(len(request.ack_ids) for _, _, request in retries)
            retries.clear()
        futures, self._futures = self._futures, {}
        for waiting in futures.values():
            for future in waiting:
                resolve(future, AcknowledgeError(AcknowledgeStatus.OTHER, info))
        return unsent

    def _send_at(self, when: float, request: Request) -> None:
        heapq.heappush(self._retries[request.is_ack], (when, next(self._numbers), request))

    def _resolve(self, request: Request, ack_id: str, failure: AcknowledgeError | None) -> None:
        for future in self._futures.pop((request.seconds, request.purpose, ack_id), ()):
            resolve(future, failure)


def _time_is_over(answer: Answer, ack_ids: Iterable[str], error: RpcError | None) -> None:
    info = f"not answered in time; the last attempt ended with: {error}"
    for ack_id in ack_ids:
        answer.failed[ack_id] = AcknowledgeError(AcknowledgeStatus.OTHER, info)


def resolve(future: AckFuture, failure: AcknowledgeError | None) -> None:
    """Set the outcome, and survive whatever the user's done callbacks do."""
    try:
        if failure is None:
            future.set_result(AcknowledgeStatus.SUCCESS)
        else:
            future.set_exception(failure)
    except BaseException:
        # A done callback that exits, say. It must not take the caller with it.
        _log.exception("a done callback of an acknowledgement raised")


def _fitting(ack_ids: Sequence[str]) -> int:
    """How many of the first ids fit into one request; at least one."""
    first = ack_ids[:MAX_IDS]
    # Ack ids are ASCII: characters are bytes.
    if sum(map(len, first)) + _ID_FRAMING * len(first) <= MAX_REQUEST_BYTES:
        return len(first)
    size = 0
    for count, ack_id in enumerate(first):
        size += len(ack_id) + _ID_FRAMING
        if size > MAX_REQUEST_BYTES:
            return max(count, 1)
    return len(first)
