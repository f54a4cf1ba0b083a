"""Remainders of interrupted and finished work in a folder, and when they may be deleted."""

from __future__ import annotations

from collections.abc import Set

from .known_ids import KnownIds
from .layout import (
    MANIFESTS,
    MARKS,
    OWNERS,
    PLANS,
    SEGMENTS,
    SKIPS,
    Manifest,
    Segment,
    numbered,
    numbers_of,
    segments_of,
    skip_path,
    skips_of,
)
from .state import State
from .storage import Delete, Get, List, Steps, put
from .store_clock import TOLERANCE, StoreClock

# Seconds for which a mark is kept: longer than any lease, after which a receiver has nothing left
# to acknowledge.
_MARK_AGE = 1200.0


def tidy(
    state: State,
    clock: StoreClock,
    known: KnownIds,
    tombstones: Set[Segment],
    *,
    window: float,
    orphan_age: float,
    nonce: str,
) -> Steps[float | None]:
    """Delete remainders, and forget old ids.

    Args:
        state: The folder, as the coordinator knows it.
        clock: The time of the store.
        known: The ids of committed messages.
        tombstones: Manifests that are known to be tombstones.
        window: For this time, in seconds, tombstones are kept.
        orphan_age: Age in seconds at which a segment without a manifest is a remainder.
        nonce: Nonce of the coordinator.

    Returns:
        The time before which a writer's remains in the store are remainders, or None.
    """
    yield from known.load()
    yield from known.merge()
    # Before the lists, which may take long: files that they lack are younger.
    now, uptime = clock.now(), known.uptime()
    # In this order: a segment that is in the first list and in none of the others has no
    # manifest, or none any more.
    segments = segments_of((yield List(SEGMENTS)))
    manifests = segments_of((yield List(MANIFESTS)))
    plans = numbers_of((yield List(PLANS)))
    marks = numbers_of((yield List(MARKS)))
    owners = numbers_of((yield List(OWNERS)))
    clock.learn(marks.values())
    newest = max(state.plans, default=state.mark)
    planned, committed = state.segments(newest), state.segments(state.mark)
    is_old = (
        max(marks, default=0) > state.mark
        or max(plans, default=0) > newest
        or max(owners, default=0) > state.owner.number
    )
    if now is None or clock.now() is None or is_old:  # 18
        return None
    for segment, file in segments.items():
        if segment in planned or now - file.modified <= orphan_age:
            continue
        manifest = manifests.get(segment)
        if manifest is None or manifest.modified - file.modified > orphan_age / 2:
            yield from bury(segment, nonce)
    for segment, file in manifests.items():
        if segment not in segments and now - file.modified > window:
            content = (yield Get([segment.manifest]))[0]
            if is_tombstone(segment, content):
                yield Delete([segment.manifest])  # 21
    kept = state.replayable_from
    obsolete = [
        # A put that was repeated or late.
        *(segment.manifest for segment in manifests.keys() & committed),
        *(numbered(OWNERS, number) for number in owners if 0 < number < state.owner.number - 1),
        *(numbered(PLANS, number) for number in plans if number < kept),
        *(
            numbered(MARKS, number)
            for number, file in marks.items()
            if number < min(kept, state.mark - 1) and now - file.modified > _MARK_AGE
        ),
        *(skip_path(*one) for one in skips_of((yield List(SKIPS))) if one[0] < kept),
    ]
    yield Delete(obsolete)  # 22
    # A redelivery may wait in a segment; until it is planned, its id is needed. The earliest time
    # counts: the receiver may have slept before it wrote the manifest, and clocks may be set.
    waiting = manifests.keys() - planned - tombstones
    state.seen = {one: state.seen.get(one, uptime) for one in waiting}
    files = [*map(manifests.__getitem__, waiting), *map(segments.get, waiting & segments.keys())]
    times = [file.modified for file in files if file]
    if max(times, default=now) <= now + TOLERANCE:
        age = max(now - min(times, default=now), 0.0)
        yield from known.forget(min([uptime - age, *state.seen.values()]))  # 23
    return now - orphan_age


def bury(segment: Segment, nonce: str) -> Steps[None]:
    """Make sure that a segment has no manifest and never will have one, and delete it."""
    tombstone = Manifest(segment, None, 0).text(nonce)
    content = yield from put(segment.manifest, tombstone)  # 19
    if is_tombstone(segment, content):
        yield Delete([segment.path])  # 20


def is_tombstone(segment: Segment, content: bytes | None) -> bool:
    """Return whether a file is a tombstone. A damaged one is not: the coordinator reports it."""
    manifest = Manifest.if_whole(segment, content)
    return manifest is not None and manifest.ids is None
