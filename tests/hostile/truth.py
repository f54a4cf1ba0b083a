"""What the hostile server has really done: its messages, leases and publishes."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from pullstream_protocol.clock import SYSTEM_CLOCK
from tests.event_log import Recorder

# Seconds. A client extends the leases that it knows.
LEASE = 10.0


class Answer(Enum):
    """The true answer for one ack id."""

    OK = "ok"
    INVALID = "PERMANENT_FAILURE_INVALID_ACK_ID"
    UNORDERED = "TRANSIENT_FAILURE_UNORDERED_ACK_ID"


class Delivery(NamedTuple):
    """One delivery of the message KEY:NUMBER, or of :SUBSCRIPTION-NUMBER without a key."""

    ack_id: str
    key: str
    number: int

    @property
    def data(self) -> str:
        if self.key:
            return f"{self.key}:{self.number}"
        return f":{self.ack_id.rpartition('-')[0]}-{self.number}"


class _Lease:
    """The state of an ack id: "leased", "acked", "nacked" or "over"."""

    def __init__(self, delivery: Delivery, deadline: float) -> None:
        self.delivery = delivery
        self.deadline = deadline
        self.state = "leased"


class Backlog:
    """An endless subscription with its leases. Thread-safe.

    Args:
        name: The full name, which is the begin of each ack id.
        keys: The ordering keys; one empty key for none.
        exactly_once: Whether ended leases are refused.
        recorder: Gets "took", "arrived" and "refused".
        window: The most messages that are unacknowledged.
    """

    def __init__(
        self,
        name: str,
        keys: Iterable[str],
        *,
        exactly_once: bool,
        recorder: Recorder,
        window: int = 200,
    ) -> None:
        self.name = name
        self.exactly_once = exactly_once
        self.is_ending = False
        self._recorder = recorder
        self._window = window
        self._lock = threading.Lock()
        self._leases: dict[str, _Lease] = {}
        self._next_number = dict.fromkeys(keys, 0)
        # The numbers of each key that wait for a redelivery, and the newest ack id of the others.
        self._waiting: dict[str, set[int]] = {key: set() for key in self._next_number}
        self._out: dict[str, dict[int, str]] = {key: {} for key in self._next_number}
        # The consumer that holds leases of a key, which nobody else gets.
        self._holder: dict[str, object] = {}
        self._deliveries = 0
        self._sent_twice: set[str] = set()

    @property
    def unfinished(self) -> int:
        """The number of messages that were delivered and are not acknowledged."""
        with self._lock:
            return self._unfinished()

    def _unfinished(self) -> int:
        return sum(len(self._waiting[key]) + len(self._out[key]) for key in self._waiting)

    def take(self, most: int, consumer: object = None) -> list[Delivery]:
        """Lease the next messages, each key in order.

        Args:
            most: The largest number of messages.
            consumer: The stream that gets them. While it has leases of a key, or those of a lost
                response, no other stream gets messages of the key.
        """
        with self._lock:
            self._expire()
            taken: list[Delivery] = []
            for key in self._next_number:
                if key and self._out[key] and self._holder[key] is not consumer:
                    continue
                self._holder[key] = consumer
                share = max(1, most // len(self._next_number))
                taken += self._take(key, min(share, most - len(taken)))
            return taken

    def _take(self, key: str, most: int) -> list[Delivery]:
        numbers = sorted(self._waiting[key])[:most]
        while len(numbers) < most and not self.is_ending and self._unfinished() < self._window:
            number = self._next_number[key]
            self._next_number[key] += 1
            self._waiting[key].add(number)
            numbers.append(number)
        return [self._lease(key, number) for number in numbers]

    def _lease(self, key: str, number: int) -> Delivery:
        self._waiting[key].discard(number)
        self._deliveries += 1
        ack_id = f"{self.name.rpartition('/')[2]}-{self._deliveries}"
        delivery = Delivery(ack_id, key, number)
        self._leases[ack_id] = _Lease(delivery, SYSTEM_CLOCK.monotonic() + LEASE)
        self._out[key][number] = ack_id
        self._recorder.record("delivered", delivery.data, ack_id=ack_id)
        return delivery

    def again(self, delivery: Delivery) -> Delivery:
        """Deliver a message once more. Only the new ack id stays valid."""
        with self._lock:
            lease = self._leases[delivery.ack_id]
            if lease.state != "leased":
                return delivery
            lease.state = "over"
            return self._lease(delivery.key, delivery.number)

    def forget_an_acknowledgement(self) -> None:
        """Let an acknowledged message wait for delivery again: a planted fault."""
        with self._lock:
            acked = [lease for lease in self._leases.values() if lease.state == "acked"]
            if len(acked) > 20:
                delivery = acked[-20].delivery
                self._waiting[delivery.key].add(delivery.number)

    def _expire(self) -> None:
        now = SYSTEM_CLOCK.monotonic()
        for out in self._out.values():
            for ack_id in list(out.values()):
                lease = self._leases[ack_id]
                if lease.state == "leased" and lease.deadline < now:
                    self._give_back(lease, "over")

    def _give_back(self, lease: _Lease, state: str) -> None:
        """End a lease, and with it the later leases of its key."""
        key, number = lease.delivery.key, lease.delivery.number
        lease.state = state
        self._recorder.record("ended", lease.delivery.data, lease=state)
        behind = [n for n in self._out[key] if n > number] if key else []
        for each in [number, *behind]:
            other = self._leases[self._out[key].pop(each)]
            if other is not lease:
                other.state = "over"
            self._waiting[key].add(each)

    def sent_twice(self, ack_ids: Iterable[str]) -> None:
        """Note that a response with these ids was sent twice."""
        self._sent_twice.update(ack_ids)

    def may_refuse(self, kind: str, ack_ids: Iterable[str]) -> bool:
        """Return whether the server may refuse a whole request for good.

        Excluded are the documented limits (docs/guarantees.md): the two requests for an id that was
        delivered twice know nothing of each other, and after a refused nack of a key only the
        server knows when the message comes again. A refused extension is no request of the user.
        """
        if kind == "extend" or (kind == "nack" and "" not in self._next_number):
            return False
        return self._sent_twice.isdisjoint(ack_ids)

    # ---- requests ------------------------------------------------------------------------------

    def arrived(self, kind: str, ack_ids: Iterable[str]) -> None:
        for ack_id in ack_ids:
            self._recorder.record("arrived", f"{kind} {ack_id}")

    def refused(self, kind: str, ack_ids: Iterable[str]) -> None:
        """Record that an answer to the client names these ids as refused."""
        for ack_id in ack_ids:
            self._recorder.record("refused", f"{kind} {ack_id}")

    def look(self, kind: str, ack_ids: list[str]) -> dict[str, Answer]:
        """Return the true answers, without an effect."""
        with self._lock:
            self._expire()
            together: dict[str, set[int]] = defaultdict(set)
            for ack_id in ack_ids:
                if lease := self._leases.get(ack_id):
                    together[lease.delivery.key].add(lease.delivery.number)
            return {ack_id: self._answer(kind, ack_id, together) for ack_id in ack_ids}

    def _answer(self, kind: str, ack_id: str, together: dict[str, set[int]]) -> Answer:
        lease = self._leases.get(ack_id)
        if not self.exactly_once:
            return Answer.OK
        if lease is None:
            return Answer.INVALID
        if kind == "ack":
            if lease.state == "acked":
                return Answer.OK
            if lease.state != "leased":
                return Answer.INVALID
            key = lease.delivery.key
            before = [n for n in self._out[key] if n < lease.delivery.number] if key else []
            return Answer.OK if together[key].issuperset(before) else Answer.UNORDERED
        right = ("leased", "nacked") if kind == "nack" else ("leased",)
        return Answer.OK if lease.state in right else Answer.INVALID

    def apply(self, kind: str, ack_ids: Iterable[str], seconds: int = 0) -> None:
        """Let a request take effect for these ids, which can be settled."""
        with self._lock:
            for ack_id in ack_ids:
                if lease := self._leases.get(ack_id):
                    self._apply(kind, lease, seconds)
                self._recorder.record("took", f"{kind} {ack_id}")

    def _apply(self, kind: str, lease: _Lease, seconds: int) -> None:
        key, number = lease.delivery.key, lease.delivery.number
        if kind == "ack":
            newest = self._out[key].get(number)
            if lease.state == "acked" or (newest is None and number not in self._waiting[key]):
                return
            if newest is not None:
                self._leases[newest].state = "over"
            lease.state = "acked"
            self._out[key].pop(number, None)
            self._waiting[key].discard(number)
        elif kind == "nack" and lease.state != "acked":
            if lease.state == "leased":
                self._give_back(lease, "nacked")
            # An earlier nack of the same request may have ended it. A repeat must succeed.
            lease.state = "nacked"
        elif lease.state == "leased":
            lease.deadline = SYSTEM_CLOCK.monotonic() + seconds


class Log:
    """The published messages of a topic. Thread-safe."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._lock = threading.Lock()
        self._last_id = 0

    def arrived(self, data: Iterable[str]) -> None:
        for each in data:
            self._recorder.record("arrived", f"publish {each}")

    def store(self, data: Iterable[str]) -> list[str]:
        """Store messages, and return their ids."""
        ids = []
        with self._lock:
            for each in data:
                self._last_id += 1
                ids.append(str(self._last_id))
                self._recorder.record("took", f"publish {each}", id=ids[-1])
        return ids

    def refused(self, data: Iterable[str]) -> None:
        for each in data:
            self._recorder.record("refused", f"publish {each}")
