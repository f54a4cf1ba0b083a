"""The holes that a review found in the protocol, each as a scenario that its rule closes.

Each scenario raises an error if the rule does not hold. The steps of docs/spark-format.md are
tested with these scenarios: without a step, at least one of them fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from pullstream.spark.errors import MissingSegment, SpoolError
from pullstream.spark.protocol.acknowledge import Acknowledge
from pullstream.spark.protocol.coordinator import START, Coordinator, Offset
from pullstream.spark.protocol.receiver import Decision, Receiver, attempts_warning, check_order
from pullstream.spark.protocol.storage import Create, Steps, probe, run
from pullstream.spark.stores import LocalFolder, StoredFile
from tests.subscriber.spark.power_cut import PowerCut
from tests.subscriber.spark.protocol.batch_rows import rows_of
from tests.subscriber.spark.protocol.world import (
    DAY,
    LEASE,
    WINDOW,
    Checkpoint,
    Lost,
    Party,
    Store,
    World,
    rows,
)

STORED, COMMITTED = Acknowledge.STORED, Acknowledge.COMMITTED


class Sleeper:
    """Steps that stop before an operation, and continue when the sleeper wakes."""

    def __init__(self, world: World, steps: Steps[Any], kind: type[Create], path: str) -> None:
        self._world = world
        self._steps = steps
        self.operation: Any = next(steps)
        while not (isinstance(self.operation, kind) and path in self.operation.path):
            self.operation = steps.send(self._carry_out())

    def wake(self) -> Any:
        """Go on to the end, and return the result."""
        try:
            while True:
                self.operation = self._steps.send(self._carry_out())
        except StopIteration as end:
            return end.value

    def _carry_out(self) -> Any:
        def one() -> Steps[Any]:
            return (yield self.operation)

        return self._world.run(one())


def started(world: World, **settings: Any) -> Receiver:
    receiver = world.receiver(**settings)
    world.run(receiver.start())
    return receiver


def ids_of(world: World, coordinator: Coordinator, start: Offset, end: Offset) -> list[str]:
    """Return the messages of a batch, as an executor reads them."""
    plan = world.run(coordinator.plan(start, end))
    contents = [world.store.get(part.segment.path) if part.taken else None for part in plan.parts]
    table = rows_of(plan, contents)
    found: list[str] = table.column("message_id").to_pylist() if table.num_columns else []
    return found


def batches(world: World, coordinator: Coordinator, start: Offset = START) -> list[list[str]]:
    """Return the messages of all batches that can be planned, each committed."""
    found: list[list[str]] = []
    while True:
        world.now += 2
        end = world.run(coordinator.latest(start))
        if end is None:
            return found
        found.append(ids_of(world, coordinator, start, end))
        start = end


def commit_some(world: World, count: int) -> tuple[Coordinator, list[Offset]]:
    """Commit some batches, each of a segment of one message."""
    receiver, coordinator = started(world), world.coordinator()
    offsets = [START]
    for number in range(count):
        world.now += 2
        world.write(receiver, f"{number}")
        end = world.run(coordinator.latest(offsets[-1]))
        ids_of(world, coordinator, offsets[-1], end)
        offsets.append(end)
    return coordinator, offsets


def tidy(world: World, coordinator: Coordinator, start: Offset) -> Offset:
    """Tidy up with a time of the store that is known: a batch must be committed before."""
    receiver = started(world)
    for number in range(2):
        world.write(receiver, f"tidy-{world.now}-{number}")
        world.now += 2
        end = world.run(coordinator.latest(start))
        ids_of(world, coordinator, start, end)
        start = end
    world.run(coordinator.tidy())
    return start


# ---- the holes -----------------------------------------------------------------------------------


def answer_of_a_put_is_lost() -> None:
    world = World()
    world.write(started(world), "a")
    coordinator = world.coordinator()
    sleeper = Sleeper(world, coordinator.latest(START), Create, "plan/")
    # The put arrives; its answer does not, and it is repeated.
    world.store.create(*sleeper.operation)
    end = sleeper.wake()
    assert ids_of(world, coordinator, START, end) == ["a"]
    receiver = started(world)
    for path in ("seg/", "man/"):
        writing = Sleeper(world, receiver.write(rows([path]), world.now), Create, path)
        world.store.create(*writing.operation)
        assert writing.wake().decision is Decision.HOLD


def two_coordinators_put_the_same_plan() -> None:
    world = World()
    one, offsets = commit_some(world, 1)
    world.write(started(world), "a")
    other = world.coordinator()
    world.now += 2
    sleeper = Sleeper(world, one.latest(offsets[1]), Create, "plan/")
    assert world.run(other.latest(offsets[1])).plan == 2
    with pytest.raises(SpoolError, match="another process with the same checkpoint"):
        sleeper.wake()


def receiver_sleeps_before_its_manifest() -> None:
    world = World(acknowledge=STORED)
    sleeper = Sleeper(world, started(world).write(rows(["a"]), world.now), Create, "man/")
    coordinator = world.coordinator()
    world.now += DAY
    start = tidy(world, coordinator, START)
    assert not [path for path in world.files("seg") if world.store.get(path) is None]
    assert sleeper.wake().decision is Decision.RETURN
    # The message comes again.
    world.write(started(world), "a")
    assert batches(world, coordinator, start) == [["a"]]


def receiver_sleeps_until_its_tombstone_is_gone() -> None:
    world = World(acknowledge=STORED)
    sleeper = Sleeper(world, started(world).write(rows(["a"]), world.now), Create, "man/")
    coordinator = world.coordinator()
    world.now += DAY
    start = tidy(world, coordinator, START)
    world.now += DAY
    tidy(world, coordinator, start)
    assert sleeper.operation.path not in world.files("man")
    assert sleeper.wake().decision is Decision.RETURN


def receiver_sleeps_for_longer_than_the_window() -> None:
    world = World()
    receiver = started(world)
    sleeper = Sleeper(world, receiver.write(rows(["a"]), world.now), Create, "seg/")
    world.write(started(world), "a")
    coordinator = world.coordinator()
    assert batches(world, coordinator) == [["a"]]
    start = Offset(1, _chain(world))
    for _ in range(3):
        world.now += WINDOW + LEASE
        start = tidy(world, coordinator, start)
    assert coordinator.known_ids.find(["a"], 0)[0] == set()
    assert sleeper.wake().decision is Decision.RETURN
    assert batches(world, coordinator, start) == []
    with pytest.raises(ValueError, match="at most a quarter"):
        World(lease=WINDOW / 3)


def redelivery_waits_while_ids_become_old() -> None:
    world = World()
    coordinator, offsets = commit_some(world, 1)
    # The segment is written in time, and its manifest when the window is over.
    sleeper = Sleeper(world, started(world).write(rows(["0"]), world.now), Create, "man/")
    world.now += 2 * WINDOW
    sleeper.wake()
    coordinator = world.coordinator()
    world.run(coordinator.latest(offsets[1]))
    assert ids_of(world, coordinator, offsets[1], Offset(2, offsets[1].chain)) == []
    # Others wait behind it while the coordinator tidies up.
    world = World(max_rows=1)
    coordinator, offsets = commit_some(world, 2)
    receiver = started(world)
    for one in ("x", "y", "0"):
        world.write(receiver, one)
    world.now += 2 * WINDOW
    end = world.run(coordinator.latest(offsets[-1]))
    world.run(coordinator.tidy())
    assert ids_of(world, coordinator, offsets[-1], end) == ["x"]
    assert batches(world, coordinator, end) == [["y"], []]


def manifests_vanish() -> None:
    world = World()
    receiver = started(world)
    written = world.write(receiver, "a")
    for path in world.files("man"):
        world.store.delete(path)
    seen = world.run(receiver.look())
    assert (seen.committed, seen.vanished) == ([], [written.segment])
    world.write(receiver, "b")
    for path in world.files():
        world.store.delete(path)
    with pytest.raises(SpoolError, match="is gone or was exchanged"):
        world.run(receiver.look())


def messages_are_acknowledged_when_a_mark_names_them() -> None:
    world = World()
    receiver, coordinator = started(world), world.coordinator()
    first, second = world.write(receiver, "a"), world.write(receiver, "b")
    assert first.decision is Decision.HOLD
    end = world.run(coordinator.latest(START))
    assert world.run(receiver.look()).committed == []
    world.run(coordinator.latest(end))
    assert world.run(receiver.look()) == ([first.segment, second.segment], [])


def coordinator_sleeps_while_another_one_goes_on() -> None:
    world = World(max_rows=1)
    coordinator, offsets = commit_some(world, 1)
    receiver = started(world)
    for one in "abcdef":
        world.write(receiver, one)
    world.now += 2
    sleeper = Sleeper(world, coordinator.latest(offsets[1]), Create, "plan/")
    other = world.coordinator()
    start = offsets[1]
    for _ in range(4):
        end = world.run(other.latest(start))
        ids_of(world, other, start, end)
        start = end
    with pytest.raises(SpoolError, match="is too late"):
        sleeper.wake()
    # Its plan is there, and nobody uses it.
    assert "plan/000000000002.json" in world.files("plan")
    world.write(receiver, "g")
    assert batches(world, world.coordinator(), start) == [["e"], ["f"], ["g"]]


def query_with_a_new_checkpoint_intrudes() -> None:
    world = World()
    coordinator, offsets = commit_some(world, 2)
    receiver = started(world)
    world.write(receiver, "a")
    intruder = world.coordinator()
    end = world.run(intruder.latest(START))
    # It gets the plan that nobody has marked, then new ones.
    assert (end.plan, ids_of(world, intruder, START, end)) == (2, ["1"])
    assert batches(world, intruder, end) == [["a"]]
    world.write(receiver, "b")
    for one in (coordinator, world.coordinator()):
        with pytest.raises(SpoolError, match="another query has taken it over"):
            world.run(one.latest(offsets[-1]))
        with pytest.raises(SpoolError, match="another query has taken it over"):
            world.run(one.commit(2)) if one is coordinator else world.run(
                one.plan(offsets[-1], Offset(3, offsets[-1].chain))
            )


def intruder_comes_between_plan_and_check() -> None:
    world = World()
    coordinator, offsets = commit_some(world, 1)
    world.write(started(world), "a")
    world.now += 2
    sleeper = Sleeper(world, coordinator.latest(offsets[1]), Create, "plan/")
    intruder = world.coordinator()
    world.run(intruder.latest(START))
    with pytest.raises(SpoolError, match="another query has taken it over"):
        sleeper.wake()
    # The newer owner adopts the plan of the older one.
    assert batches(world, intruder, Offset(1, _chain(world))) == [["a"]]


def two_engines_replay_a_plan() -> None:
    world = World()
    world.write(started(world), "a")
    log = Checkpoint()
    one = world.add_engine(log)
    world.until(one, "sink")
    other = world.add_engine(log)
    world.until(other, "sink")
    for party in (one, other):
        world.step(party)
    assert log.ids() == ["a"]


def engine_crashes_before_it_logs_its_first_offset() -> None:
    world = World(max_rows=1)
    receiver = started(world)
    world.write(receiver, "a")
    world.write(receiver, "b")
    log = Checkpoint()
    party = world.add_engine(log)
    world.until(party, "offset log")
    world.kill(party)
    _live(world, world.add_engine(log), 200)
    assert list(log.batches.values()) == [["a"], ["b"]]


def engine_loses_its_last_commit() -> None:
    for acknowledge in Acknowledge:
        world = World(acknowledge=acknowledge)
        coordinator, offsets = commit_some(world, 3)
        world.run(coordinator.latest(offsets[3]))
        # The commit of batch 3 is lost: it is read again, as if nothing had been marked.
        again = world.coordinator()
        assert ids_of(world, again, offsets[2], offsets[3]) == ["2"]
        assert world.run(world.coordinator().latest(offsets[2])) == offsets[3]
        world.write(started(world), "a")
        world.now += 2
        end = world.run(coordinator.latest(offsets[3]))
        world.run(coordinator.latest(end))
        if acknowledge is STORED:
            # Its files stay for an hour after the next batch was committed.
            assert ids_of(world, world.coordinator(), offsets[2], offsets[3]) == ["2"]
            world.now += DAY
            world.write(started(world), "b")
            world.run(coordinator.latest(world.run(coordinator.latest(end))))
        with pytest.raises(MissingSegment, match="does not exist"):
            world.run(world.coordinator().plan(offsets[2], offsets[3]))


def put_lands_late() -> None:
    world = World()
    receiver = started(world)
    world.write(receiver, "16")
    sleeper = Sleeper(world, receiver.write(rows(["17"]), world.now), Create, "man/")
    late = sleeper.operation
    with pytest.raises(Lost):
        sleeper._steps.throw(Lost())
    written = world.write(receiver, "18")
    assert written.segment.number == 1, "nothing follows 17 under its name"
    coordinator = world.coordinator()
    assert sorted(batches(world, coordinator)[0]) == ["16", "18"]
    world.store.create(*late)
    assert batches(world, coordinator, Offset(1, _chain(world))) == [["17"]]


def committed_manifest_is_put_again() -> None:
    world = World(acknowledge=STORED)
    receiver, coordinator = started(world), world.coordinator()
    written = world.write(receiver, "a")
    content = world.store.get(written.segment.manifest)
    assert content is not None
    end = world.run(coordinator.latest(START))
    start = tidy(world, coordinator, end)
    # The plan can be replayed still, and will soon be gone.
    world.store.create(written.segment.manifest, content)
    for _ in range(3):
        world.now += WINDOW + LEASE
        start = tidy(world, coordinator, start)
    world.now += 2
    assert [ids for ids in batches(world, coordinator, start) if ids] == []


def list_is_no_snapshot() -> None:
    world = World()
    receiver = started(world)
    world.write(receiver, "16")
    coordinator = world.coordinator()
    end = world.run(coordinator.latest(START))
    seventeen, eighteen = world.write(receiver, "17"), world.write(receiver, "18")
    hidden = world.store.files_by_path.pop(seventeen.segment.manifest)
    # The list began before 17 was written, and ended after 18 was.
    assert world.run(coordinator.latest(end)) is None
    world.store.files_by_path[seventeen.segment.manifest] = hidden
    assert batches(world, coordinator, end) == [["17", "18"]]
    # A number that stays away does not stop the receiver's later ones.
    nineteen, _ = world.write(receiver, "19"), world.write(receiver, "20")
    world.store.delete(nineteen.segment.manifest)
    world.now += 2
    assert world.run(coordinator.latest(Offset(2, end.chain))) is None
    assert batches(world, coordinator, Offset(2, end.chain)) == [["20"]]
    assert eighteen.segment.number == 3


def keys_are_in_two_segments() -> None:
    check_order(1, by_key=True)
    check_order(2, by_key=False)
    with pytest.raises(ValueError, match="there are 2 receivers"):
        check_order(2, by_key=True)


def available_now_ends_with_what_was_there() -> None:
    world = World()
    receiver, coordinator = started(world), world.coordinator()
    world.write(receiver, "a")
    world.run(coordinator.end_here(START))
    world.write(receiver, "b")
    assert batches(world, coordinator) == [["a"]]


def clock_of_the_driver_jumps() -> None:
    world = World()
    coordinator, offsets = commit_some(world, 2)
    sleeper = Sleeper(world, started(world).write(rows(["a"]), world.now), Create, "man/")
    world.now += 5
    start = tidy(world, coordinator, offsets[-1])
    world.store.skew += 2 * DAY
    start = tidy(world, coordinator, start)
    assert sleeper.wake().decision is Decision.HOLD, "the segment is no remainder"
    world.write(started(world), "0", "1")
    world.now += 2
    end = world.run(coordinator.latest(start))
    assert ids_of(world, coordinator, start, end) == ["a"], "0 and 1 are known"


def many_receivers_start() -> None:
    world = World()
    coordinator, start, counts = world.coordinator(), START, []
    for number in range(400):
        receiver = started(world)
        world.write(receiver, f"{number}")
        sleeper = Sleeper(world, receiver.write(rows([f"x{number}"]), world.now), Create, "man/")
        sleeper._steps.close()
        world.now += 120
        end = world.run(coordinator.latest(start))
        ids_of(world, coordinator, start, end)
        start = end
        if number % 10 == 9:
            # Engines start again, too, and every second one loses its checkpoint.
            world.run(coordinator.tidy())
            coordinator = world.coordinator()
            start = START if number % 20 == 19 else start
            counts.append(len(world.files()))
    assert max(counts[25:]) <= max(counts[5:20]) + 5, counts
    assert len(coordinator.known_ids) <= 2 * WINDOW / 120 + 20


def queries_start_often() -> None:
    for acknowledge in Acknowledge:
        world = World(acknowledge=acknowledge)
        receiver, start, counts = started(world), START, []
        for number in range(40):
            world.write(receiver, f"{number}")
            # A job that a clock starts every ten minutes.
            coordinator = world.coordinator()
            end = world.run(coordinator.latest(start))
            assert ids_of(world, coordinator, start, end) == [f"{number}"]
            world.run(coordinator.tidy())
            start = end
            world.now += 600
            counts.append(len(world.files("seg")))
        # With `stored`, the batches of an hour can be replayed.
        assert max(counts) <= (9 if acknowledge is STORED else 3), counts


def receivers_fill_the_storage() -> None:
    for acknowledge in Acknowledge:
        world = World(acknowledge=acknowledge)
        receiver = started(world, share=2000)
        size = 0
        while receiver.has_room(800) and size < 10:
            world.write(receiver, "a")
            size += 1
        assert 1 <= size <= 3
        coordinator = world.coordinator()
        world.run(coordinator.latest(world.run(coordinator.latest(START))))
        world.run(receiver.look())
        assert receiver.has_room(800)


def older_checkpoint_comes_back() -> None:
    world = World()
    coordinator, offsets = commit_some(world, 42)
    world.run(coordinator.latest(offsets[42]))
    with pytest.raises(MissingSegment, match="the checkpoint is an old copy"):
        world.run(world.coordinator().latest(offsets[40]))
    with pytest.raises(SpoolError, match="belongs to another checkpoint"):
        world.run(world.coordinator().latest(offsets[42]._replace(plan=44)))
    # Exactly the next one, although a later one exists.
    world = World(max_rows=1)
    receiver = started(world)
    world.write(receiver, "a")
    world.write(receiver, "b")
    first = world.run(world.coordinator().latest(START))
    coordinator = world.coordinator()
    second = world.run(coordinator.latest(first))
    assert (first.plan, second.plan) == (1, 2)
    assert world.run(world.coordinator().latest(first)).plan == 2


def somebody_seeks_back() -> None:
    world = World(max_rows=100)
    coordinator, offsets = commit_some(world, 10)
    start = tidy(world, coordinator, offsets[-1])
    world.now += 1000
    world.write(started(world), *(f"{number}" for number in range(10)), "new")
    end = world.run(coordinator.latest(start))
    assert ids_of(world, coordinator, start, end) == ["new"]
    assert coordinator.counts.long_committed == 10


def kills_use_up_the_delivery_attempts() -> None:
    assert attempts_warning(COMMITTED, 0) is None
    assert attempts_warning(COMMITTED, 10) is None
    assert attempts_warning(STORED, 5) is None
    assert "allows 5 delivery attempts" in (attempts_warning(COMMITTED, 5) or "")


def storage_breaks_its_promises() -> None:
    class Careless(Store):
        def create(self, path: str, data: bytes) -> bool:
            self.put(path, data)
            return True

    class Late(Store):
        def files(self, prefix: str = "") -> Iterator[StoredFile]:
            return iter(())

    class Cached(Store):
        def delete(self, path: str) -> None:
            pass

    probe(Store(World()), "x")
    for kind in (Careless, Late, Cached):
        with pytest.raises(SpoolError, match="the storage cannot hold a spool"):
            probe(kind(World()), "x")


def power_fails() -> None:
    with TemporaryDirectory() as name:
        folder = Path(name, "spool")
        # Another process made this folder, and died before it was synced.
        (folder / "man").mkdir(parents=True)
        store, world = LocalFolder(folder), World()
        receiver = world.receiver()
        with PowerCut() as power:
            run(receiver.start(), store)
            segment = run(receiver.write(rows(["a"]), world.now), store).segment
            assert {segment.path, segment.manifest, "owner/000000000000.json"} <= power.left(folder)
        with PowerCut() as power:
            store.create("plan/0", b"0")
            power.fail_folders = True
            with pytest.raises(OSError, match="the disk"):
                store.create("plan/1", b"1")
            assert "plan/1" not in power.left(folder)
            # The file is there. The repeated call must not take it for durable.
            power.fail_folders = False
            assert not store.create("plan/1", b"1")
            assert "plan/1" in power.left(folder)


def _chain(world: World) -> str:
    path = world.files("owner")[-1]
    content: str = json.loads(world.store.get(path) or b"")["chain"]
    return content


def _live(world: World, party: Party, steps: int) -> None:
    for _ in range(steps):
        world.now += 0.1
        if party in world.parties:
            world.step(party)
    assert party in world.parties, world.log


# By the number that the review gave it.
HOLES: dict[int, list[Callable[[], None]]] = {
    1: [answer_of_a_put_is_lost, two_coordinators_put_the_same_plan],
    2: [receiver_sleeps_before_its_manifest, receiver_sleeps_until_its_tombstone_is_gone],
    3: [receiver_sleeps_for_longer_than_the_window, redelivery_waits_while_ids_become_old],
    4: [manifests_vanish, messages_are_acknowledged_when_a_mark_names_them],
    5: [coordinator_sleeps_while_another_one_goes_on],
    6: [query_with_a_new_checkpoint_intrudes, intruder_comes_between_plan_and_check],
    7: [two_engines_replay_a_plan],
    8: [engine_crashes_before_it_logs_its_first_offset],
    9: [engine_loses_its_last_commit],
    10: [power_fails],
    11: [put_lands_late, committed_manifest_is_put_again, list_is_no_snapshot],
    12: [keys_are_in_two_segments],
    13: [available_now_ends_with_what_was_there],
    14: [clock_of_the_driver_jumps],
    15: [many_receivers_start, queries_start_often],
    16: [receivers_fill_the_storage],
    17: [kills_use_up_the_delivery_attempts],
    18: [storage_breaks_its_promises],
    19: [older_checkpoint_comes_back],
    20: [somebody_seeks_back],
}
