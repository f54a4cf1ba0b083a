"""Rules for requests about messages: batching, size limits, retries.

This module has no thread and no gRPC. It takes settlements, makes requests, and takes their
answers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from pullstream.ack_future import AckFuture
from pullstream.exceptions import AcknowledgeError, AcknowledgeStatus
from pullstream_protocol.due_queue import DueQueue
from pullstream_protocol.errors import RpcError

from .ack_lease_keepalive import AckLeaseKeepalive
from .ack_requests import (
    ACK_RETRY_FOR,
    ALL_KINDS,
    AckRequest,
    AckResult,
    Purpose,
    RequestKind,
    after_doubt,
    kind_of,
    new_backoff,
    read_ack_result,
    retry_for,
    unconfirmed,
)
from .ordered_ack_retry import OrderedAckRetry

# The server accepts requests of up to 512 KiB (https://cloud.google.com/pubsub/quotas). Ack ids may
# be long.
MAX_REQUEST_BYTES = 450_000
MAX_IDS = 2_500

_ID_FRAMING = 4

# The SDK makes the other requests for itself. After a shutdown, their answers are not needed.
_SETTLEMENTS = (Purpose.ACK, Purpose.USER, Purpose.NACK, Purpose.RETURN)


class Outbox:
    """Settlements that wait to be sent or retried, and the futures that wait for results.

    Not thread-safe. Times are seconds on one monotonic clock. Every tracked future is resolved: by
    the server's answer, at the end of the retries, or by `abandon`.

    Acknowledgements and deadline changes are separate kinds, so that one continues while the other
    is full: leases must be extended even while the server accepts no acknowledgements.

    Args:
        keep_for: Length in seconds of the repeated lease extensions for acknowledgements without an
            answer. 0: no such extensions.

    Attributes:
        unanswered: Number of acknowledgements that no answer has settled.
        failures: Number of settlements that could not be delivered.
    """

    def __init__(self, *, keep_for: int = 0) -> None:
        self._keepalive = AckLeaseKeepalive(keep_for)
        # (purpose, seconds) -> ids, in the order of arrival.
        self._pending: dict[tuple[Purpose, int], list[str]] = {}
        self._retries: dict[RequestKind, DueQueue[AckRequest]] = {
            RequestKind.DEADLINES: DueQueue(),
            RequestKind.ACKS: DueQueue(),
        }
        self._numbers = itertools.count()
        # Acknowledgements to retry when earlier ones have succeeded.
        self._ordered_retry = OrderedAckRetry()
        self._futures: dict[tuple[Purpose, int, str], list[AckFuture]] = {}
        self.unanswered: int = 0
        self.failures: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits to be sent, now or later."""
        return not (self._pending or self._ordered_retry or any(self._retries.values()))

    @property
    def has_futures(self) -> bool:
        """Whether a future waits for a result."""
        return bool(self._futures)

    def add_ack_ids(self, purpose: Purpose, ack_ids: Iterable[str], seconds: int = 0) -> None:
        """Add acknowledgements or deadline changes.

        Args:
            purpose: ACK to acknowledge, or the reason for a deadline change.
            ack_ids: The deliveries.
            seconds: The new deadline in seconds from the time of sending. 0 to acknowledge.
        """
        waiting = self._pending.setdefault((purpose, seconds), [])
        before = len(waiting)
        waiting.extend(ack_ids)
        if purpose is Purpose.ACK:
            self.unanswered += len(waiting) - before

    def track_future(
        self, purpose: Purpose, ack_id: str, future: AckFuture, seconds: int = 0
    ) -> None:
        """Resolve `future` with the result for one ack id of this kind, added before or after.

        Args:
            purpose: As for `add_ack_ids`.
            ack_id: The delivery.
            future: The future to resolve.
            seconds: As for `add_ack_ids`.
        """
        self._futures.setdefault((purpose, seconds, ack_id), []).append(future)

    def next_request(
        self, now: float, kinds: Collection[RequestKind] = ALL_KINDS
    ) -> AckRequest | None:
        """Return the next request to send, within the size limits; None if nothing is due.

        Args:
            now: The present time.
            kinds: The kinds that are open.
        """
        unsent = () if RequestKind.ACKS in kinds else self._pending.get((Purpose.ACK, 0), ())
        # Copied to a list, because `add_ack_ids` changes the collections that the iterator reads.
        for ack_ids in list(self._keepalive.due_ack_ids(now, unsent)):
            self.add_ack_ids(Purpose.KEEPALIVE, ack_ids, self._keepalive.seconds)
        request = (
            self._next_retry(now, kinds)
            or self._next_ordered_retry(now, kinds)
            or self._next_pending(now, kinds)
        )
        if request is not None:
            request.sent_at = now
            if request.is_ack and not request.is_ordered_retry:
                self._keepalive.track_sent(request, now)
        return request

    def _next_ordered_retry(self, now: float, kinds: Collection[RequestKind]) -> AckRequest | None:
        if RequestKind.ACKS not in kinds or now < self._ordered_retry.due:
            return None
        ack_ids = self._ordered_retry.ack_ids
        request = AckRequest(
            Purpose.ACK, ack_ids[: _fitting(ack_ids)], math.inf, is_ordered_retry=True
        )
        self._ordered_retry.mark_sent(request.ack_ids)
        return request

    def _next_retry(self, now: float, kinds: Collection[RequestKind]) -> AckRequest | None:
        # Deadline changes come first.
        for kind, retries in self._retries.items():
            if kind in kinds:
                for request in retries.pop_due(now):
                    return request
        return None

    def _next_pending(self, now: float, kinds: Collection[RequestKind]) -> AckRequest | None:
        for key, ack_ids in self._pending.items():
            purpose, seconds = key
            if kind_of(purpose) not in kinds:
                continue
            fitting = _fitting(ack_ids)
            give_up_at = now + retry_for(purpose, seconds)
            request = AckRequest(purpose, ack_ids[:fitting], give_up_at, seconds)
            request.number = next(self._numbers)
            rest = ack_ids[fitting:]
            # Removed and inserted again, so that the kinds of requests take turns.
            del self._pending[key]
            if rest:
                self._pending[key] = rest
            return request
        return None

    def next_due(self, kinds: Collection[RequestKind] = ALL_KINDS) -> float | None:
        """Return when a retry of an open kind or an extension of kept leases is due, or None.

        Args:
            kinds: The kinds that are open.
        """
        retries = (each.next_due() for kind, each in self._retries.items() if kind in kinds)
        times = [due for due in retries if due is not None]
        if RequestKind.ACKS in kinds:
            times.append(self._ordered_retry.due)
        if RequestKind.DEADLINES in kinds:
            times.append(self._keepalive.next_due())
        due = min(times, default=math.inf)
        return None if due == math.inf else due

    def record_answer(self, request: AckRequest, error: RpcError | None, now: float) -> AckResult:
        """Record the end of a call: resolve futures, and schedule retries.

        Args:
            request: The request of the call.
            error: The error of the call; None if it succeeded.
            now: The present time.

        Returns:
            The results by ack id. `failed` contains the permanent failures; `retry`, `unnamed` and
            `split` contain only ids that will be sent again.
        """
        if request.purpose is Purpose.KEEPALIVE:
            return AckResult()
        answer = read_ack_result(request.ack_ids, error)
        sent, in_doubt = len(request.ack_ids), self._in_doubt(request)
        if not request.is_ack:
            # Leases have no order.
            answer.retry += answer.too_early
            answer.too_early = []
        names_some = bool(answer.failed or answer.too_early)
        if answer.unnamed and (request.is_ordered_retry or not names_some):
            # Without the pause of a retry, the same request would be repeated over and over.
            again = {*answer.retry, *answer.unnamed}
            answer.retry = [ack_id for ack_id in request.ack_ids if ack_id in again]
            answer.unnamed = []
        self._split(request, answer.split, in_doubt, now)
        for ack_id in in_doubt.intersection(answer.failed):
            answer.failed[ack_id] = after_doubt(answer.failed[ack_id])
        if request.is_ordered_retry:
            staying = self._keep_for_ordered_retry(answer, error, now)
        else:
            staying = self._try_again(request, answer, error, now)
        if request.is_ack:
            self.unanswered -= sent - staying - len(answer.split)
        self._resolve_answered(request, answer)
        return answer

    def _resolve_answered(self, request: AckRequest, answer: AckResult) -> None:
        """Count the failures of a request, and then resolve its futures."""
        if not request.is_receipt:
            self.failures += len(answer.failed)
        # After all counts, because a caller that has the result may look at the statistics.
        if self._futures:
            for ack_id in answer.succeeded:
                self._resolve(request, ack_id, None)
            for ack_id, failure in answer.failed.items():
                self._resolve(request, ack_id, failure)

    def _in_doubt(self, request: AckRequest) -> set[str]:
        """Return the ids of a request for which an earlier attempt may have taken effect."""
        if request.is_ordered_retry:
            return self._ordered_retry.in_doubt.intersection(request.ack_ids)
        return set(request.ack_ids) if request.may_have_succeeded else set()

    def _split(
        self, request: AckRequest, ack_ids: list[str], in_doubt: set[str], now: float
    ) -> None:
        if not ack_ids:
            return
        half = len(ack_ids) // 2
        for part in (ack_ids[:half], ack_ids[half:]):
            smaller = replace(request, ack_ids=part, backoff=new_backoff(), is_ordered_retry=False)
            smaller.may_have_succeeded = not in_doubt.isdisjoint(part)
            if request.is_ordered_retry:
                smaller.give_up_at = now + ACK_RETRY_FOR
            self._send_at(now, smaller)

    def _try_again(
        self, request: AckRequest, answer: AckResult, error: RpcError | None, now: float
    ) -> int:
        """Schedule retries, and return how many ids will be sent again."""
        was_in_doubt = request.may_have_succeeded
        if answer.unnamed and now < request.give_up_at:
            # At once, because the server has answered, and the new request is smaller.
            smaller = replace(request, ack_ids=answer.unnamed, may_have_succeeded=True)
            smaller.backoff = new_backoff()
            self._send_at(now, smaller)
        elif answer.unnamed:
            self._give_up(answer, answer.unnamed, error)
        if answer.retry:
            again = now + request.backoff.next_pause()
            if again < request.give_up_at:
                request.may_have_succeeded = True
                request.ack_ids = answer.retry
                self._send_at(again, request)
            else:
                self._give_up(answer, answer.retry, error)
        if not answer.retry:
            self._keepalive.untrack(request)
        staying = len(answer.retry) + len(answer.unnamed)
        if answer.too_early:
            staying += self._ordered_retry.add_refused(
                answer.too_early,
                request.number,
                now,
                request.give_up_at,
                may_have_succeeded=was_in_doubt,
            )
            self._keepalive.track_added(self._ordered_retry, now)
        return staying

    def _give_up(self, answer: AckResult, ack_ids: list[str], error: RpcError | None) -> None:
        """Let ids of an answer fail, and empty their list, because their time is over."""
        failure = unconfirmed(f"not answered in time: {error}")
        answer.failed.update(dict.fromkeys(ack_ids, failure))
        ack_ids.clear()

    def _keep_for_ordered_retry(self, answer: AckResult, error: RpcError | None, now: float) -> int:
        again = answer.retry + answer.too_early
        is_away = bool(answer.retry) and not answer.names_ids
        refused = set(answer.too_early) - self._ordered_retry.in_doubt
        late = self._ordered_retry.record_answer(
            now, answer.too_early, answer.retry, is_away=is_away
        )
        info = f"refused until its time was up: {error}"
        for ack_id in late:
            answer.failed[ack_id] = (
                AcknowledgeError(AcknowledgeStatus.OTHER, info)
                if ack_id in refused
                else unconfirmed(f"not answered in time: {error}")
            )
        if not self._ordered_retry:
            self._keepalive.untrack(self._ordered_retry)
        return len(again) - len(late)

    def record_failure(self, request: AckRequest, info: str) -> AckResult:
        """Record that a call could not begin, and that no other call can: resolve futures."""
        unsent = AcknowledgeError(AcknowledgeStatus.OTHER, f"not sent: {info}")
        answer = AckResult(failed=dict.fromkeys(request.ack_ids, unsent))
        for ack_id in self._in_doubt(request):
            answer.failed[ack_id] = after_doubt(unsent)
        if request.is_ordered_retry:
            self._ordered_retry.record_answer(request.sent_at, (), (), is_away=True)
        else:
            self._keepalive.untrack(request)
        if request.is_ack:
            self.unanswered -= len(request.ack_ids)
        self._resolve_answered(request, answer)
        return answer

    def abandon(self, in_flight: Iterable[AckRequest], why: str) -> dict[str, AcknowledgeError]:
        """Stop sending, and resolve all futures.

        Args:
            in_flight: The requests whose calls have no answer.
            why: The reason, for the errors.

        Returns:
            Acks, nacks and deadline changes that the server has not confirmed, each with its error,
            which says whether it was sent.
        """
        unsent = AcknowledgeError(AcknowledgeStatus.OTHER, f"not sent: {why}")
        refused = AcknowledgeError(AcknowledgeStatus.OTHER, f"refused for now, and then {why}")
        unanswered = unconfirmed(f"sent, but {why} before the server confirmed it")
        waiting = [request for retries in self._retries.values() for request in retries.items()]
        in_doubt = [*in_flight, *(request for request in waiting if request.may_have_succeeded)]
        ordered = AckRequest(Purpose.ACK, self._ordered_retry.ack_ids, math.inf)
        doubtful_ordered = AckRequest(Purpose.ACK, list(self._ordered_retry.in_doubt), math.inf)
        # An id may have several requests. Then the last error here counts.
        errors: dict[tuple[Purpose, int, str], AcknowledgeError] = {}
        for (purpose, seconds), ack_ids in self._pending.items():
            errors.update(dict.fromkeys(((purpose, seconds, i) for i in ack_ids), unsent))
        for request in (*waiting, ordered):
            errors.update(dict.fromkeys(_future_keys(request), refused))
        for request in (*in_doubt, doubtful_ordered):
            errors.update(dict.fromkeys(_future_keys(request), unanswered))
        self._ordered_retry.clear()
        self._pending.clear()
        self._keepalive.clear()
        for retries in self._retries.values():
            retries.clear()
        settlements = {i: e for (purpose, _, i), e in errors.items() if purpose in _SETTLEMENTS}
        self.failures += len(settlements)
        futures, self._futures = self._futures, {}
        for key, of_key in futures.items():
            for future in of_key:
                resolve(future, errors.get(key, unsent))
        return settlements

    def _send_at(self, when: float, request: AckRequest) -> None:
        self._retries[request.kind].schedule(request, when)

    def _resolve(self, request: AckRequest, ack_id: str, failure: AcknowledgeError | None) -> None:
        for future in self._futures.pop((request.purpose, request.seconds, ack_id), ()):
            resolve(future, failure)


def _future_keys(request: AckRequest) -> Iterator[tuple[Purpose, int, str]]:
    """Yield the keys of the futures that wait for a request."""
    return ((request.purpose, request.seconds, ack_id) for ack_id in request.ack_ids)


def resolve(future: AckFuture, failure: AcknowledgeError | None) -> None:
    """Resolve a future."""
    if failure is None:
        future.set_result(AcknowledgeStatus.SUCCESS)
    else:
        future.set_exception(failure)


def _fitting(ack_ids: Sequence[str]) -> int:
    """Return how many of the first ids certainly fit into one request; at least one."""
    first = ack_ids[:MAX_IDS]
    # Ack ids are ASCII, so characters are bytes. The ids of a server have nearly the same length.
    # Adding up their lengths one by one took a twentieth of a microsecond for each message.
    longest = max(map(len, first), default=0) + _ID_FRAMING
    return min(len(first), max(MAX_REQUEST_BYTES // longest, 1))
