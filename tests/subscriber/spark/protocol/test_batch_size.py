"""The rows that a plan leaves out do not fill its batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from pullstream.spark.protocol.coordinator import START
from pullstream.spark.protocol.known_ids import KnownIds
from tests.subscriber.spark.protocol.holes import batches, started
from tests.subscriber.spark.protocol.world import World


def planned(world: World, *segments: Sequence[str]) -> list[list[str]]:
    """Return the batches of segments that wait together."""
    receiver = started(world)
    for ids in segments:
        world.now += 2
        world.write(receiver, *ids)
    return batches(world, world.coordinator())


def test_a_batch_is_full_of_new_messages_although_segments_repeat_others() -> None:
    world = World(max_rows=4)
    segments = ["ab", "ab", "ac", "bc", "de", "f"]
    assert planned(world, *segments) == [["a", "b", "c"], ["d", "e", "f"]]


def test_messages_of_committed_batches_fill_no_batch() -> None:
    """Receivers were killed, so everything that they held comes again, in segments of others."""
    world = World(max_rows=3)
    receiver, coordinator = started(world), world.coordinator()
    world.write(receiver, "a", "b", "c")
    end = world.run(coordinator.latest(START))
    for ids in ("ab", "c", "bac", "xa", "cby", "zab", "w"):
        world.now += 2
        world.write(receiver, *ids)
    assert batches(world, coordinator, end) == [["x", "y", "z"], ["w"]]
    assert coordinator.counts.left_out == 6 + 1 + 2 + 2


def test_a_segment_that_is_over_the_limit_is_planned_alone() -> None:
    world = World(max_rows=2)
    assert planned(world, "abc", "ad", "e") == [["a", "b", "c"], ["d", "e"]]


def test_the_size_of_the_rows_that_are_left_out_does_not_count() -> None:
    segments = ["abcd", "dcba", "abcd", "efgh", "i"]
    world = World()
    planned(world, *segments)
    size = max(len(world.store.get(path) or b"") for path in world.files("seg"))
    world = World(max_rows=100, max_bytes=2 * size)
    assert planned(world, *segments) == [["a", "b", "c", "d", "e", "f", "g", "h"], ["i"]]


def test_a_plan_leaves_out_a_limited_number_of_rows() -> None:
    """It has the number of each of them."""
    world = World(max_rows=2)
    segments = ["ab", *["ab"] * 25, "c"]
    assert planned(world, *segments) == [["a", "b"], [], [], ["c"]]


def test_a_batch_without_redeliveries_compares_no_segment_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(max_rows=3)
    receiver, coordinator = started(world), world.coordinator()
    for ids in ("ab", "cd", "ef"):
        world.now += 2
        world.write(receiver, *ids)
    compared: list[str] = []
    find = KnownIds.find

    def record(known: KnownIds, ids: Iterable[str], long_ago: float) -> tuple[set[str], set[str]]:
        compared.extend(ids)
        return find(known, ids, long_ago)

    monkeypatch.setattr(KnownIds, "find", record)
    assert batches(world, coordinator) == [["a", "b"], ["c", "d"], ["e", "f"]]
    assert compared == list("abcdef")
