"""The segments of a folder that are not committed, as seen by a process that only looks."""

from __future__ import annotations

import json
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


class _Content(NamedTuple):
    """The content of a manifest. The fields are as in WaitingSegment."""

    rows: int
    size: int
    oldest: float | None
    attempts: int


class WaitingSegments:
    """Looks at a folder again and again. A manifest and a plan are read once.

    Args:
        storage: The folder, which need not exist.
        seen: The result of `seen` of another object. Files never change.
    """

    def __init__(self, storage: Storage, seen: bytes | None = None) -> None:
        self._storage = storage
        self._plans: dict[int, set[Segment]] = {}
        # None: a tombstone.
        self._known: dict[Segment, _Content | None] = {}
        if seen is not None:
            found = json.loads(seen)
            self._plans = {number: {Segment(*one) for one in some} for number, some in found[0]}
            self._known = {
                Segment(*one): content and _Content(*content) for one, content in found[1]
            }

    def seen(self) -> bytes:
        """Return the contents that were read and may be needed again."""
        plans = [(number, sorted(some)) for number, some in self._plans.items() if some]
        return json.dumps([plans, [*self._known.items()]]).encode()

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
                self._known[segment] = _content(Manifest.read(segment, content))
        self._known = {one: self._known[one] for one in waiting if one in self._known}
        found = [
            WaitingSegment(plan_of.get(one), one, *content)
            for one, content in self._known.items()
            if content is not None
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


def _content(manifest: Manifest) -> _Content | None:
    if manifest.ids is None:
        return None
    return _Content(len(manifest.ids), manifest.size, manifest.oldest, manifest.attempts)
