"""`pullstream spool skip`: a batch is read without a segment that is damaged or missing."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from pullstream.spark.errors import MissingSegment, SpoolError
from pullstream.spark.protocol.acknowledge import Acknowledge
from pullstream.spark.protocol.coordinator import START, Coordinator, CoordinatorSettings, Offset
from pullstream.spark.protocol.layout import Segment
from pullstream.spark.protocol.receiver import Receiver
from pullstream.spark.protocol.storage import run
from pullstream.spark.stores import Bucket, LocalFolder, store_of
from tests.subscriber.command_line import Result, failure, pullstream, usage_error
from tests.subscriber.spark.protocol.batch_rows import rows_of
from tests.subscriber.spark.protocol.holes import commit_some
from tests.subscriber.spark.protocol.world import DAY, World, rows

SUBSCRIPTION = "projects/p/subscriptions/s"


class Spool(NamedTuple):
    """A spool with one plan of two segments, of which the first one is the damaged one."""

    store: LocalFolder | Bucket
    place: str
    words: list[str]
    damaged: Segment
    other: Segment
    end: Offset

    def read(self) -> list[str]:
        """Return the ids of the batch, as a query that starts again."""
        settings = CoordinatorSettings(subscription=SUBSCRIPTION)
        plan = run(Coordinator(settings, elapsed=float).plan(START, self.end), self.store)
        contents = [self.store.get(part.segment.path) for part in plan.parts]
        ids: list[str] = rows_of(plan, contents).column("message_id").to_pylist()
        return ids

    def skip(self, *words: str) -> Result:
        return pullstream("spool", "skip", "1", f"{self.damaged}", *self.words, *words)


def made(place: str, options: dict[str, str], acknowledge: Acknowledge) -> Spool:
    spool = unplanned(place, options, acknowledge)
    settings = CoordinatorSettings(subscription=SUBSCRIPTION)
    end = run(Coordinator(settings, elapsed=float).latest(START), spool.store)
    assert end is not None
    return spool._replace(end=end)


def unplanned(place: str, options: dict[str, str], acknowledge: Acknowledge) -> Spool:
    """Return a spool without a plan."""
    store = store_of(place, options)
    receiver = Receiver(SUBSCRIPTION, acknowledge, max_age=60, share=10**9, elapsed=float)
    run(receiver.start(), store)
    damaged = run(receiver.write(rows(["1", "2"]), 0.0), store).segment
    other = run(receiver.write(rows(["2", "3"]), 0.0), store).segment
    storage = [word for item in options.items() for word in ("--storage", "=".join(item))]
    return Spool(store, place, ["--spool", place, *storage], damaged, other, START)


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return made(str(tmp_path / "spool"), {}, Acknowledge.COMMITTED)


def cut_off(spool: Spool) -> None:
    data = spool.store.get(spool.damaged.path)
    assert data is not None
    spool.store.put(spool.damaged.path, data[: len(data) // 2])


def replace(spool: Spool) -> None:
    data = spool.store.get(spool.other.path)
    assert data is not None
    spool.store.put(spool.damaged.path, data[:-1])


def delete(spool: Spool) -> None:
    spool.store.delete(spool.damaged.path)


@pytest.mark.parametrize("damage", [cut_off, replace, delete])
def test_the_error_of_a_damaged_segment_has_the_command_that_skips_it(
    spool: Spool, damage: Callable[[Spool], None]
) -> None:
    damage(spool)
    with pytest.raises(MissingSegment) as error:
        spool.read()
    text = str(error.value)
    assert f"{spool.damaged.path} of plan 1 is " in text
    assert f"{spool.damaged.manifest} has their ids" in text
    found = re.search(r"pullstream (spool skip .* --spool) PLACE", text)
    assert found is not None
    result = pullstream(*found[1].split(), spool.place)
    assert result.code == 0, result.stderr
    assert result.lines == [
        f"plan 1 will be read without {spool.damaged.path}: 2 messages come again (1, 2). Start "
        "the query again"
    ]
    assert spool.read() == ["2", "3"]


def test_messages_of_a_skipped_segment_that_were_acknowledged_are_reported_as_lost(
    tmp_path: Path,
) -> None:
    spool = made(str(tmp_path / "spool"), {}, Acknowledge.STORED)
    delete(spool)
    assert "2 messages are lost (1, 2)" in spool.skip().lines[0]
    assert spool.skip("--json").objects == [
        {
            "plan": 1,
            "segment": spool.damaged.path,
            "messages": 2,
            "lost": True,
            "ids": ["1", "2"],
        }
    ]


def damage_manifest(spool: Spool) -> None:
    spool.store.put(spool.damaged.manifest, b"{")


def delete_manifest(spool: Spool) -> None:
    spool.store.delete(spool.damaged.manifest)


@pytest.mark.parametrize("damage", [damage_manifest, delete_manifest])
def test_a_query_needs_no_manifest_of_a_planned_segment_that_can_be_read(
    spool: Spool, damage: Callable[[Spool], None]
) -> None:
    """The rows have the ids, by which redeliveries are left out."""
    damage(spool)
    coordinator = Coordinator(CoordinatorSettings(subscription=SUBSCRIPTION), elapsed=float)
    run(coordinator.plan(START, spool.end), spool.store)
    assert spool.read() == ["1", "2", "3"]
    receiver = Receiver(SUBSCRIPTION, Acknowledge.COMMITTED, max_age=60, share=9, elapsed=float)
    run(receiver.start(), spool.store)
    run(receiver.write(rows(["1", "5"]), 0.0), spool.store)
    end = run(coordinator.latest(spool.end), spool.store)
    assert end is not None
    assert coordinator.planned(end).parts[0].left_out == [0]


@pytest.mark.parametrize("damage", [damage_manifest, delete_manifest])
def test_a_segment_whose_manifest_cannot_be_read_either_is_skipped(
    spool: Spool, damage: Callable[[Spool], None]
) -> None:
    """A message that is in the batch's other segment, too, is in the batch."""
    damage(spool)
    delete(spool)
    with pytest.raises(MissingSegment, match=f"spool skip 1 {spool.damaged} --spool"):
        spool.read()
    assert spool.skip().lines == [
        f"plan 1 will be read without {spool.damaged.path}: 2 messages come again with "
        "acknowledge=committed, and are lost with acknowledge=stored (their ids are not known, "
        "because the manifest cannot be read either). Start the query again"
    ]
    [result] = spool.skip("--json").objects
    assert (result["messages"], result["lost"], result["ids"]) == (2, None, None)
    assert spool.read() == ["2", "3"]


def test_a_message_of_a_skipped_segment_is_in_the_plan_that_was_made_ahead(spool: Spool) -> None:
    """It was left out there, because the plan before had it."""
    receiver = Receiver(SUBSCRIPTION, Acknowledge.COMMITTED, max_age=60, share=9, elapsed=float)
    run(receiver.start(), spool.store)
    run(receiver.write(rows(["1", "4"]), 0.0), spool.store)
    settings = CoordinatorSettings(subscription=SUBSCRIPTION)
    coordinator = Coordinator(settings, elapsed=float)
    run(coordinator.plan(START, spool.end), spool.store)
    assert run(coordinator.plan_ahead(spool.end), spool.store)
    delete(spool)
    spool.skip()
    assert spool.read() == ["2", "3"]
    # The decision counts in each later run, until the plan is old.
    for _ in range(2):
        coordinator = Coordinator(settings, elapsed=float)
        end = run(coordinator.latest(spool.end), spool.store)
        assert end is not None
        plan = run(coordinator.plan(spool.end, end), spool.store)
        contents = [spool.store.get(part.segment.path) for part in plan.parts]
        assert rows_of(plan, contents).column("message_id").to_pylist() == ["1", "4"]


def test_the_decision_to_skip_a_segment_is_a_file_with_the_reason(spool: Spool) -> None:
    delete(spool)
    spool.skip()
    [file] = spool.store.files("skip")
    content = json.loads(spool.store.get(file.path) or b"")
    assert "is missing" in content["problem"]
    # It is never changed.
    spool.skip()
    assert json.loads(spool.store.get(file.path) or b"") == content


def test_a_segment_of_a_bucket_is_skipped(s3: dict[str, str]) -> None:
    spool = made(f"s3://lake/{uuid.uuid4().hex}", s3, Acknowledge.COMMITTED)
    delete(spool)
    assert spool.skip().code == 0
    assert spool.read() == ["2", "3"]


def test_only_what_cannot_be_read_and_is_not_committed_is_skipped(
    spool: Spool, tmp_path: Path
) -> None:
    def problem(*words: str) -> str:
        return failure("spool", "skip", *words, *spool.words)

    assert f"{spool.damaged.path} can be read" in problem("1", str(spool.damaged))
    delete(spool)
    assert "plan/000000000002.json does not exist; there are plans [1]" in problem(
        "2", str(spool.damaged)
    )
    assert "seg/x/000000000009.arrow is not in plan 1, which has seg/" in problem("1", "x/9")
    assert "must have the form RECEIVER/NUMBER" in usage_error(
        "spool", "skip", "1", "../x", *spool.words
    )
    empty = ("--spool", str(tmp_path / "empty"))
    assert "the folder is no spool" in failure("spool", "skip", "1", "x/9", *empty)
    assert "must be a folder, or a URL" in usage_error(
        "spool", "skip", "1", "x/9", "--spool", "hdfs://x"
    )
    settings = CoordinatorSettings(subscription=SUBSCRIPTION)
    run(Coordinator(settings, elapsed=float).latest(spool.end), spool.store)
    assert "plan 1 is committed" in problem("1", str(spool.damaged))
    assert list(spool.store.files("skip")) == []


# ---- segments that are in no plan ----------------------------------------------------------------


@pytest.fixture
def waiting(tmp_path: Path) -> Spool:
    return unplanned(str(tmp_path / "spool"), {}, Acknowledge.COMMITTED)


def first_batch(spool: Spool, elapsed: Callable[[], float] = float) -> list[str]:
    """Return the ids of the first batch, as a query that starts."""
    coordinator = Coordinator(CoordinatorSettings(subscription=SUBSCRIPTION), elapsed=elapsed)
    end = run(coordinator.latest(START), spool.store)
    if end is None:
        # The number of the segment that was left out is missing, so the query lists again.
        coordinator.expect_segment()
        end = run(coordinator.latest(START), spool.store)
    assert end is not None
    return spool._replace(end=end).read()


def test_a_damaged_manifest_is_not_needed_if_the_segment_can_be_read(waiting: Spool) -> None:
    damage_manifest(waiting)
    assert first_batch(waiting) == ["1", "2", "3"]


def test_a_manifest_of_a_later_format_is_not_taken_for_a_damaged_one(waiting: Spool) -> None:
    waiting.store.put(waiting.damaged.manifest, b'{"format": 2}')
    with pytest.raises(SpoolError, match="format 2 is unknown"):
        first_batch(waiting)


@pytest.mark.parametrize("damage", [cut_off, delete])
def test_the_error_of_a_segment_without_plan_and_manifest_has_the_command_that_skips_it(
    waiting: Spool, damage: Callable[[Spool], None]
) -> None:
    damage_manifest(waiting)
    damage(waiting)
    with pytest.raises(SpoolError) as error:
        first_batch(waiting)
    assert f"{waiting.damaged.manifest} is damaged" in str(error.value)
    assert f"{waiting.damaged.path}, whose rows have the same ids, is " in str(error.value)
    found = re.search(r"pullstream (spool skip .* --spool) PLACE", str(error.value))
    assert found is not None
    result = pullstream(*found[1].split(), waiting.place)
    assert result.code == 0, result.stderr
    assert result.lines == [
        f"the spool will be read without {waiting.damaged.path}: its messages come again with "
        "acknowledge=committed, and are lost with acknowledge=stored (their ids are not known, "
        "because the manifest cannot be read either). Start the query again"
    ]
    assert first_batch(waiting) == ["2", "3"]


def test_a_receiver_returns_the_messages_of_a_segment_that_no_plan_will_have(
    tmp_path: Path,
) -> None:
    store = store_of(str(tmp_path / "spool"), {})
    receiver = Receiver(SUBSCRIPTION, Acknowledge.COMMITTED, max_age=60, share=10**9, elapsed=float)
    run(receiver.start(), store)
    segment = run(receiver.write(rows(["1"]), 0.0), store).segment
    for path in (segment.path, segment.manifest):
        store.put(path, b"")
    assert (
        pullstream("spool", "skip", "0", str(segment), "--spool", f"{tmp_path / 'spool'}").code == 0
    )
    coordinator = Coordinator(CoordinatorSettings(subscription=SUBSCRIPTION), elapsed=float)
    assert run(coordinator.latest(START), store) is None
    assert run(receiver.look(), store).vanished == [segment]


def test_only_a_segment_without_plan_that_cannot_be_read_is_left_out_of_all_plans(
    waiting: Spool, tmp_path: Path
) -> None:
    def problem(segment: Segment, spool: Spool = waiting) -> str:
        return failure("spool", "skip", "0", str(segment), *spool.words)

    assert f"{waiting.damaged.manifest} can be read" in problem(waiting.damaged)
    damage_manifest(waiting)
    assert f"{waiting.damaged.path} can be read" in problem(waiting.damaged)
    delete(waiting)
    delete_manifest(waiting)
    assert f"{waiting.damaged.manifest} does not exist" in problem(waiting.damaged)
    planned = made(str(tmp_path / "planned"), {}, Acknowledge.COMMITTED)
    damage_manifest(planned)
    delete(planned)
    assert "is in plan 1; write 1 instead of 0" in problem(planned.damaged, planned)
    assert [*waiting.store.files("skip"), *planned.store.files("skip")] == []


def test_a_damaged_manifest_does_not_end_the_query_when_it_tidies_up() -> None:
    """Its segment is missing, or has another time, as if the manifest were late."""
    world = World(max_rows=1)
    coordinator, offsets = commit_some(world, 2)
    receiver = world.receiver()
    world.run(receiver.start())
    world.write(receiver, "x")
    first, second = world.write(receiver, "y").segment, world.write(receiver, "z").segment
    world.now += 2 * DAY
    assert world.run(coordinator.latest(offsets[-1])) is not None
    world.store.put(first.manifest, b"{")
    world.store.files_by_path[second.manifest] = b"{", 1000.0
    world.store.delete(second.path)
    world.run(coordinator.tidy())
    assert {first.path, first.manifest, second.manifest} <= set(world.files())
