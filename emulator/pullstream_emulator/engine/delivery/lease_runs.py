"""Leases of many messages without an object for each of them.

A response of 1,000 messages is one entry in the table of leases, and its acknowledgement ends them
together. An extension of the whole entry keeps it. A message gets its own `Delivery` when something
happens to it alone: a nack, an extension, the end of its lease. Delivering and acknowledging 100
messages a response takes 0.4 us of the engine for each message instead of 2.9.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import final, overload

from pullstream_emulator.engine.record import RecordSpan

from .delivery_state import Consumer, Delivery, LeaseRun


class LeaseRuns:
    """The runs of one subscription, by the numbers of their ack IDs."""

    def __init__(self) -> None:
        # In ascending order. Some runs have ended.
        self._firsts: list[int] = []
        self._runs: list[LeaseRun] = []
        self._ended = 0

    def add(self, run: LeaseRun) -> None:
        """Add a run, whose numbers are the highest."""
        self._firsts.append(run.ids.start)
        self._runs.append(run)

    def at(self, number: int) -> LeaseRun | None:
        """Return the run that has this number; None if there is none, or if it may have ended."""
        place = bisect_right(self._firsts, number) - 1
        if place < 0 or number >= self._runs[place].ids.stop:
            return None
        return self._runs[place]

    def count_ended(self) -> None:
        """Note that a run has ended, and forget such runs if they are many."""
        self._ended += 1
        if 2 * self._ended > len(self._runs):
            self._runs = [run for run in self._runs if run.leased]
            self._firsts = [run.ids.start for run in self._runs]
            self._ended = 0


class AckIdSpan(Sequence[str]):
    """Ack IDs with consecutive numbers, as texts that are created on request.

    Args:
        numbers: The numbers.
        mark: The part after the number.
    """

    __slots__ = ("mark", "numbers")

    def __init__(self, numbers: range, mark: str) -> None:
        self.numbers = numbers
        self.mark = mark

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> AckIdSpan: ...

    def __getitem__(self, index: int | slice) -> str | AckIdSpan:
        if isinstance(index, slice):
            return AckIdSpan(self.numbers[index], self.mark)
        return f"{self.numbers[index]:x}{self.mark}"


@final
class DeliverySpan(Sequence[Delivery]):
    """Consecutive messages that are delivered or acknowledged together, for the first time.

    The items are new objects, which show the state at the time of the lease.

    Attributes:
        records: The messages.
        seqs: Their sequence numbers.
        ack_ids: Their ack IDs.
        number: The number of the first lease among the leases of the subscription.
        holder: The consumer that leases them.
        size: Their size, in bytes.
    """

    __slots__ = ("ack_ids", "holder", "number", "records", "seqs", "size")

    def __init__(
        self,
        records: RecordSpan,
        seqs: range,
        ack_ids: AckIdSpan,
        number: int,
        holder: Consumer,
        size: int,
    ) -> None:
        self.records = records
        self.size = size
        self.seqs = seqs
        self.ack_ids = ack_ids
        self.number = number
        self.holder = holder

    def __len__(self) -> int:
        return len(self.seqs)

    @overload
    def __getitem__(self, index: int) -> Delivery: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Delivery]: ...

    def __getitem__(self, index: int | slice) -> Delivery | Sequence[Delivery]:
        if isinstance(index, slice):
            return list(self)[index]
        at = range(len(self.seqs))[index]
        delivery = Delivery(self.records[at], None)
        delivery.ack_id = self.ack_ids[at]
        delivery.number = self.number + at
        delivery.holder = self.holder
        return delivery
