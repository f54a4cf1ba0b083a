"""Each step of the protocol is needed: without it, a test of the protocol fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pullstream.spark import stores
from pullstream.spark.errors import SpoolError
from pullstream.spark.protocol import coordinator as coordinating
from pullstream.spark.protocol import remainders
from pullstream.spark.protocol.acknowledge import Acknowledge
from pullstream.spark.protocol.coordinator import Coordinator
from pullstream.spark.protocol.known_ids import KnownIds
from pullstream.spark.protocol.layout import Part, Segment, segments_of
from pullstream.spark.protocol.receiver import Receiver, Seen
from pullstream.spark.protocol.store_clock import StoreClock
from pullstream.spark.stores import StoredFile
from tests.subscriber.spark.protocol import holes
from tests.subscriber.spark.protocol.random_world import RandomWorld
from tests.subscriber.spark.protocol.world import Checkpoint, Store, World

FORMAT = Path(__file__).resolve().parents[4] / "docs/spark-format.md"

Patch = pytest.MonkeyPatch


def random_lives() -> None:
    """Live until a check fails, for a few seconds at most."""
    for seed in range(60):
        for acknowledge in Acknowledge:
            RandomWorld(seed, acknowledge, ticks=200).live()


def nothing(*_: Any) -> Iterator[Any]:
    return iter(())


def without_puts(
    folder: str, chosen: Callable[[bytes], bool] = lambda data: True
) -> Callable[[Patch], None]:
    """Return a patch with which some puts are not carried out, but seem to be."""
    create = Store.create

    def skip(store: Store, path: str, data: bytes) -> bool:
        return (path.startswith(folder) and chosen(data)) or create(store, path, data)

    return lambda patch: patch.setattr(Store, "create", skip)


def without_deletions(*folders: str) -> Callable[[Patch], None]:
    """Return a patch with which some deletions are not carried out."""
    delete = Store.delete

    def skip(store: Store, path: str) -> None:
        if not path.startswith(folders):
            delete(store, path)

    return lambda patch: patch.setattr(Store, "delete", skip)


def is_tombstone(data: bytes) -> bool:
    return b"tombstone" in data


def always_young(while_writing: bool) -> Callable[[Patch], None]:
    is_young = Receiver._is_young

    def skip(receiver: Receiver, since: float) -> bool:
        return receiver._is_writing is while_writing or is_young(receiver, since)

    return lambda patch: patch.setattr(Receiver, "_is_young", skip)


def with_one_name(patch: Patch) -> None:
    def keep(receiver: Receiver) -> None:
        receiver._name, receiver._next = "receiver", 1

    patch.setattr(Receiver, "_take_name", keep)


def without_evidence(patch: Patch) -> None:
    look = Receiver.look

    def take_absence_for_it(receiver: Receiver) -> Any:
        seen = yield from look(receiver)
        return Seen([*seen.committed, *seen.vanished], [])

    patch.setattr(Receiver, "look", take_absence_for_it)


def replays_end_at_once(patch: Patch) -> None:
    finish = Coordinator._finish

    def finish_early(coordinator: Coordinator, state: Any) -> Any:
        state.replayable_from = state.mark + 1
        yield from finish(coordinator, state)

    patch.setattr(Coordinator, "_finish", finish_early)


def lists_only_what_follows(patch: Patch) -> None:
    newest = [""]

    def follow(files: Iterable[StoredFile]) -> dict[Segment, StoredFile]:
        new = [file for file in files if file.path > newest[0]]
        newest[0] = max([newest[0], *(file.path for file in new)])
        return segments_of(new)

    patch.setattr(coordinating, "segments_of", follow)


def with_gaps(patch: Patch) -> None:
    patch.setattr(Coordinator, "_without_gaps", lambda _, state, waiting: sorted(waiting))


def without_comparison(patch: Patch) -> None:
    def take_all(coordinator: Coordinator, state: Any, manifests: Any) -> tuple[list[Part], int]:
        return [Part(one.segment, len(one.ids), []) for one in manifests], 0

    patch.setattr(Coordinator, "_compare", take_all)


def forgets_regardless(patch: Patch) -> None:
    forget = KnownIds.forget
    patch.setattr(KnownIds, "forget", lambda known, until: forget(known, known.uptime()))


def keeps_tombstones(patch: Patch) -> None:
    def tidy(*arguments: Any, **settings: Any) -> Any:
        return remainders.tidy(*arguments, **{**settings, "window": inf})

    patch.setattr(coordinating, "tidy", tidy)


def keeps_orphans(patch: Patch) -> None:
    patch.setattr(remainders, "bury", nothing)


def trusts_the_clock(patch: Patch) -> None:
    patch.setattr(StoreClock, "now", lambda clock: clock._elapsed() + clock._offset)


def table_appends(patch: Patch) -> None:
    def append(world: World, log: Checkpoint, plan: int, ids: list[str]) -> None:
        log.batches[plan] = log.batches.get(plan, []) + ids

    patch.setattr(World, "commit", append)


class Removal(NamedTuple):
    """A step, or a part of it, that is removed.

    Attributes:
        step: Number of the step in docs/spark-format.md.
        without: Removes it.
        check: Fails then.
    """

    step: int
    without: Callable[[Patch], None]
    check: Callable[[], None]


def replaced(owner: object, name: str, value: Any) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(owner, name, value)


REMOVALS = {
    "new name": Removal(1, with_one_name, random_lives),
    "segment": Removal(2, without_puts("seg/"), random_lives),
    "age": Removal(3, always_young(True), holes.receiver_sleeps_for_longer_than_the_window),
    "manifest": Removal(4, without_puts("man/", lambda data: not is_tombstone(data)), random_lives),
    "age after the manifest": Removal(
        5, always_young(False), holes.receiver_sleeps_until_its_tombstone_is_gone
    ),
    "evidence": Removal(6, without_evidence, holes.manifests_vanish),
    "share": Removal(7, replaced(Receiver, "has_room", lambda *_: True), random_lives),
    "owner": Removal(
        8,
        without_puts("owner/", lambda data: b'"chain":""' not in data),
        holes.query_with_a_new_checkpoint_intrudes,
    ),
    "owner's check": Removal(
        9,
        replaced(Coordinator, "_check_owner", nothing),
        holes.query_with_a_new_checkpoint_intrudes,
    ),
    "mark": Removal(10, without_puts("mark/"), random_lives),
    "known ids": Removal(11, replaced(KnownIds, "add", nothing), random_lives),
    "manifests' end": Removal(12, without_deletions("man/"), holes.many_receivers_start),
    "segments' end": Removal(13, without_deletions("seg/", "plan/"), holes.many_receivers_start),
    "one plan later": Removal(13, replays_end_at_once, holes.engine_loses_its_last_commit),
    "full list": Removal(14, lists_only_what_follows, holes.put_lands_late),
    "no gaps": Removal(14, with_gaps, holes.list_is_no_snapshot),
    "comparison": Removal(15, without_comparison, random_lives),
    "plan": Removal(16, without_puts("plan/"), random_lives),
    "plan's check": Removal(
        17,
        replaced(Coordinator, "_check_plan", nothing),
        holes.coordinator_sleeps_while_another_one_goes_on,
    ),
    "time of the store": Removal(18, trusts_the_clock, holes.clock_of_the_driver_jumps),
    "tombstone": Removal(
        19, without_puts("man/", is_tombstone), holes.receiver_sleeps_before_its_manifest
    ),
    "orphans' end": Removal(20, keeps_orphans, holes.many_receivers_start),
    "tombstones' end": Removal(21, keeps_tombstones, holes.many_receivers_start),
    "marks' end": Removal(22, without_deletions("mark/"), holes.many_receivers_start),
    "owners' end": Removal(22, without_deletions("owner/"), holes.many_receivers_start),
    "forgetting": Removal(23, replaced(KnownIds, "forget", nothing), holes.many_receivers_start),
    "waiting redeliveries": Removal(
        23, forgets_regardless, holes.redelivery_waits_while_ids_become_old
    ),
    "table's batch": Removal(24, table_appends, holes.two_engines_replay_a_plan),
    "sync": Removal(25, replaced(stores, "_sync", lambda folder: None), holes.power_fails),
}


@pytest.mark.parametrize("name", REMOVALS)
def test_the_protocol_fails_without_this_step(name: str, monkeypatch: Patch) -> None:
    removal = REMOVALS[name]
    removal.without(monkeypatch)
    try:
        removal.check()
    except (AssertionError, SpoolError, pytest.fail.Exception):
        return
    pytest.fail(f"nothing fails without step {removal.step} ({name})")


def test_each_step_of_the_format_page_is_removed_by_a_test() -> None:
    numbers = [int(one) for one in re.findall(r"^(\d+)\. \*\*", FORMAT.read_text(), re.MULTILINE)]
    assert numbers == sorted({removal.step for removal in REMOVALS.values()})
