"""The index of known ids is exact within its limits, and small."""

from __future__ import annotations

from random import Random

import pytest

from pullstream.spark.protocol.known_ids import KnownIds
from pullstream.spark.protocol.storage import run
from tests.subscriber.spark.protocol.world import Store, World

FAR_AWAY = 10.0**9


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> Store:
    return Store(World())


def opened(store: Store, clock: Clock, window: float = FAR_AWAY, capacity: int = 10**6) -> KnownIds:
    known = KnownIds(window, capacity, clock)
    run(known.load(), store)
    return known


def test_ids_are_found_whatever_they_look_like(store: Store, clock: Clock) -> None:
    known = opened(store, clock)
    ids = ["1", "01", "x", "", "10", "9223372036854775807", "9223372036854775808", "a\nb", "\uff11"]
    run(known.add(1, ids), store)
    others = ["2", "001", "X", "9223372036854775806", "9223372036854775809", "a", "b"]
    for each in (known, opened(store, clock)):
        assert each.find([*ids, *others], FAR_AWAY)[0] == set(ids)
        assert len(each) == len(ids)


@pytest.mark.parametrize("seed", range(5))
def test_ids_are_found_after_any_number_of_merges_and_starts(
    store: Store, clock: Clock, seed: int
) -> None:
    rng = Random(seed)
    known, ids = opened(store, clock), set[str]()
    for plan in range(1, 200):
        clock.now += 1
        new = {f"{'t' if rng.random() < 0.1 else ''}{rng.randrange(10**6)}" for _ in range(9)} - ids
        run(known.add(plan, new), store)
        run(known.merge(), store)
        ids |= new
        if rng.random() < 0.1:
            known = opened(store, clock)
    asked = [*ids, *(f"{rng.randrange(10**6)}" for _ in range(1000))]
    assert known.find(asked, FAR_AWAY)[0] == ids.intersection(asked)
    assert known.newest == 199
    assert len(list(store.files())) < 80


def test_a_merge_that_was_interrupted_leaves_no_id_twice(store: Store, clock: Clock) -> None:
    known = opened(store, clock)
    for plan in range(1, 9):
        run(known.add(plan, [f"{plan}"]), store)
    before = dict(store.files_by_path)
    run(known.merge(), store)
    store.files_by_path |= before
    known = opened(store, clock)
    assert len(known) == 8
    assert [file.path for file in store.files()] == ["known/000000000001-000000000008.number.arrow"]


def test_ids_are_kept_for_the_window_and_no_longer(store: Store, clock: Clock) -> None:
    known = opened(store, clock, window=100)
    for plan in range(1, 12):
        run(known.add(plan, [f"{plan}"]), store)
        clock.now += 20
    # 220 seconds have passed since plan 1, and 20 since plan 11.
    run(known.forget(known.uptime()), store)
    found = known.find([f"{plan}" for plan in range(1, 12)], FAR_AWAY)[0]
    assert found == {f"{plan}" for plan in range(7, 12)}
    assert known.forgotten_early == 0
    # A segment that has waited for 60 seconds may have a redelivery of plan 7.
    clock.now += 40
    run(known.forget(known.uptime() - 60), store)
    assert known.find(["7"], FAR_AWAY)[0] == {"7"}


def test_the_newest_ids_are_kept_within_the_capacity(store: Store, clock: Clock) -> None:
    known = opened(store, clock, capacity=20)
    for plan in range(1, 11):
        run(known.add(plan, [f"{plan * 10 + place}" for place in range(5)]), store)
        clock.now += 20
    run(known.forget(known.uptime()), store)
    assert len(known) == 20
    assert known.find(["70", "100"], FAR_AWAY)[0] == {"70", "100"}
    assert known.forgotten_early == 30
    assert known.oldest_age == 80


def test_time_without_a_coordinator_makes_no_id_older(store: Store, clock: Clock) -> None:
    known = opened(store, clock, window=100)
    run(known.add(1, ["1"]), store)
    run(known.add(2, ["2"]), store)
    clock.now += 10_000
    known = opened(store, clock, window=100)
    clock.now += 90
    run(known.forget(known.uptime()), store)
    assert known.find(["1"], FAR_AWAY)[0] == {"1"}
    clock.now += 20
    run(known.forget(known.uptime()), store)
    assert known.find(["1"], FAR_AWAY)[0] == set()


def test_ids_that_were_known_long_ago_are_named(store: Store, clock: Clock) -> None:
    known = opened(store, clock)
    run(known.add(1, ["1", "x"]), store)
    clock.now += 601
    run(known.add(2, ["2"]), store)
    assert known.find(["1", "2", "3", "x"], 600) == ({"1", "2", "x"}, {"1", "x"})
