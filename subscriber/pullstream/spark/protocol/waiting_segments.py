"""The segments of a folder that are not committed, as seen by a process that only looks."""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import NamedTuple

from pullstream.spark.errors import SpoolError

from .layout import MANIFESTS, PLANS, Manifest, Plan, Segment, numbered, numbers_of, segments_of
from .storage import Storage


class WaitingSegment(NamedTuple):
    """A segment that is not committed.

    Attributes:
        plan: Number of its plan. None: it is in no plan yet.
        segment: Its name.
        rows: Number of its messages. The plan may leave some of them out.
        size: Size of its file in bytes.
        oldest: The earliest publish time, in seconds since the epoch; None without messages.
        attempts: Highest delivery attempt; 0 if the server does not count attempts.
    """

    plan: int | None
    segment: Segment
    rows: int
    size: int
    oldest: float | None
    attempts: int


class WaitingSegments:
    """Looks at a folder again and again. A manifest and a plan are read once.

    Args:
        storage: The folder, which need not exist.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._plans: dict[int, set[Segment]] = {}
        self._known: dict[Segment, Manifest] = {}

    def after(self, committed: int) -> list[WaitingSegment]:
        """Return the present segments that are not in plans up to `committed`.

        The segments of plans come first, by the plan's number.

        Raises:
            OSError: The folder cannot be read.
        """
        # The manifests first: one that is here is in a plan only if that is there, too.
        manifests = segments_of(self._storage.files(MANIFESTS))
        numbers = numbers_of(self._storage.files(PLANS))
        self._plans = {
            number: self._plans.get(number) or self._planned(number) for number in numbers
        }
        plan_of = {one: number for number, some in self._plans.items() for one in some}
        waiting = [one for one in manifests if plan_of.get(one, inf) > committed]
        new = [one for one in waiting if one not in self._known]
        contents = self._storage.map_all(self._storage.get, [one.manifest for one in new])
        for segment, content in zip(new, contents, strict=True):
            # It may be committed meanwhile, or damaged, which the query reports.
            with suppress(SpoolError):
                self._known[segment] = Manifest.read(segment, content)
        self._known = {one: self._known[one] for one in waiting if one in self._known}
        found = [
            WaitingSegment(
                plan_of.get(one), one, len(read.ids), read.size, read.oldest, read.attempts
            )
            for one, read in self._known.items()
            if read.ids is not None
        ]
        return sorted(
            found, key=lambda one: (one.plan is None, one.plan or 0, one.oldest or 0.0, one.segment)
        )

    def _planned(self, number: int) -> set[Segment]:
        try:
            plan = Plan.read(number, self._storage.get(numbered(PLANS, number)))
        except SpoolError:
            # Deleted meanwhile, or damaged, which the query reports.
            return set()
        return {part.segment for part in plan.parts}
