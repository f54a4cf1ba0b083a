"""The files of a spool can be read with nothing but Arrow and JSON, and are checked when read."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pullstream.spark.errors import MissingSegment, SpoolError
from pullstream.spark.protocol.acknowledge import Acknowledge
from pullstream.spark.protocol.coordinator import START, Coordinator, CoordinatorSettings, Offset
from pullstream.spark.protocol.layout import (
    Manifest,
    Mark,
    Owner,
    Part,
    Plan,
    Segment,
    segments_of,
    skip_path,
    skips_of,
)
from pullstream.spark.protocol.receiver import Receiver
from pullstream.spark.protocol.storage import run
from pullstream.spark.stores import LocalFolder, StoredFile
from tests.subscriber.spark.protocol.batch_rows import rows_of

SUBSCRIPTION = "projects/p/subscriptions/s"
SEGMENT = Segment("r", 1)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """A spool with a committed batch, a planned batch, in which a message is left out, and more."""
    store = LocalFolder(tmp_path / "spool")
    receiver = Receiver(
        SUBSCRIPTION, Acknowledge.COMMITTED, max_age=60, share=10**9, elapsed=lambda: 0.0
    )
    run(receiver.start(), store)
    coordinator = Coordinator(CoordinatorSettings(subscription=SUBSCRIPTION), elapsed=lambda: 0.0)

    def write(*ids: str) -> None:
        run(receiver.write(rows(*ids), 0.0), store)

    write("1", "2")
    end = latest(coordinator, START, store)
    write("2", "3")
    write("x")
    latest(coordinator, end, store)
    write("4")
    return tmp_path / "spool"


def latest(coordinator: Coordinator, start: Offset, store: LocalFolder) -> Offset:
    end = run(coordinator.latest(start), store)
    assert end is not None
    return end


def rows(*ids: str) -> pa.RecordBatch:
    return pa.record_batch(
        {"message_id": pa.array(ids), "data": pa.array([one.encode() for one in ids])}
    )


def planned_rows(spool: Path, read: Any) -> list[Any]:
    """Read the newest plan as docs/spark-format.md tells other programs to."""
    plan = json.loads(max((spool / "plan").iterdir()).read_bytes())
    assert plan["format"] == 1
    found = []
    for (receiver, number), count, left_out in plan["parts"]:
        ids = read(spool / f"seg/{receiver}/{number:012}.arrow")
        assert len(ids) == count
        found += [one for row, one in enumerate(ids) if row not in left_out]
    return found


def test_a_folder_is_read_with_pyarrow_alone(spool: Path) -> None:
    def read(path: Path) -> Any:
        return pa.ipc.open_file(str(path)).read_all().column("message_id").to_pylist()

    assert planned_rows(spool, read) == ["3", "x"]
    [known] = (spool / "known").iterdir()
    assert pa.ipc.open_file(str(known)).read_all().column("message_id").to_pylist() == [1, 2]
    assert {path.name for path in spool.iterdir()} == {
        *("owner", "seg", "man", "plan", "mark", "known")
    }


@pytest.mark.skipif(find_spec("polars") is None, reason="Polars is not installed")
def test_a_folder_is_read_with_polars_alone(spool: Path) -> None:
    import polars  # type: ignore[import-not-found,unused-ignore]

    def read(path: Path) -> Any:
        return polars.read_ipc(path)["message_id"].to_list()

    assert planned_rows(spool, read) == ["3", "x"]


@pytest.mark.parametrize(
    ("read", "good"),
    [
        (Owner.read, Owner(1, SUBSCRIPTION, "c", 0, "n").text()),
        (Plan.read, Plan(1, 1, "n", [Part(SEGMENT, 2, [1])]).text()),
        (Mark.read, Mark(1, 1, [SEGMENT]).text("n")),
        (lambda _, data: Manifest.read(SEGMENT, data), Manifest(SEGMENT, ["1"], 9).text("n")),
    ],
)
def test_damaged_files_are_named(read: Any, good: bytes) -> None:
    read(1, good)
    cases = {
        b"{": "is damaged",
        b"[]": "is damaged",
        b"null": "is damaged",
        good[:-9]: "is damaged",
        good.replace(b'"format":1', b'"format":2'): "format 2 is unknown",
        None: "is missing",
    }
    for data, message in cases.items():
        with pytest.raises(SpoolError, match=rf"(owner|plan|mark|man)/.*1\.json.*{message}"):
            read(1, data)


@pytest.mark.parametrize("name", ["../x", "a/b", "", "A", ".", "x" * 65, 7, None])
def test_a_name_that_leads_out_of_the_folder_is_refused(name: Any) -> None:
    plan = json.dumps({"format": 1, "nonce": "n", "owner": 1, "parts": [[[name, 1], 1, []]]})
    with pytest.raises(SpoolError, match="is damaged"):
        Plan.read(1, plan.encode())
    mark = {"format": 1, "nonce": "n", "replayable_from": 1, "segments": [[name, 1]]}
    with pytest.raises(SpoolError, match="is damaged"):
        Mark.read(1, json.dumps(mark).encode())


def test_files_with_other_names_are_ignored() -> None:
    paths = [
        *("seg/r/000000000001.arrow", "seg/r/.000000000002.arrow.x.tmp", "seg/r/1.arrow"),
        *("seg/../000000000001.arrow", "seg/r/000000000001.arrow/x", "x/r/000000000001.arrow"),
    ]
    assert list(segments_of(StoredFile(path, 1, 0.0) for path in paths)) == [SEGMENT]


def test_a_missing_or_damaged_segment_names_file_and_batch() -> None:
    plan = Plan(7, 1, "n", [Part(SEGMENT, 2, [])])
    for data, state in ((None, "missing"), (b"ARROW1 and no more", "damaged")):
        with pytest.raises(MissingSegment, match=rf"{SEGMENT.path} of plan 7 is {state}.*2 messag"):
            rows_of(plan, [data])
    # A segment of which no row is taken is not read.
    assert rows_of(Plan(7, 1, "n", [Part(SEGMENT, 2, [0, 1])]), [None]).num_rows == 0


@pytest.mark.parametrize("acknowledge", Acknowledge)
def test_a_damaged_segment_can_be_skipped(tmp_path: Path, acknowledge: Acknowledge) -> None:
    """Its messages come again, and messages that only it had are in the batch from others."""
    store = LocalFolder(tmp_path)
    receiver = Receiver(SUBSCRIPTION, acknowledge, max_age=60, share=10**9, elapsed=lambda: 0.0)
    run(receiver.start(), store)
    settings = CoordinatorSettings(subscription=SUBSCRIPTION, acknowledge=acknowledge)
    damaged = run(receiver.write(rows("1", "2"), 0.0), store).segment
    run(receiver.write(rows("2", "3", "2"), 0.0), store)
    coordinator = Coordinator(settings, elapsed=lambda: 0.0)
    end = latest(coordinator, START, store)
    store.delete(damaged.path)
    assert skips_of([StoredFile(skip_path(end.plan, damaged), 2, 0.0)]) == [(end.plan, damaged)]
    store.create(skip_path(end.plan, damaged), b"{}")
    coordinator = Coordinator(settings, elapsed=lambda: 0.0)
    plan = run(coordinator.plan(START, end), store)
    table = rows_of(plan, [store.get(part.segment.path) for part in plan.parts])
    assert table.column("message_id").to_pylist() == ["2", "3"]
    assert run(coordinator.latest(end), store) is None
    seen = run(receiver.look(), store)
    assert (damaged in seen.committed, damaged in seen.vanished) == (False, True)
    # Now 1 is delivered again.
    run(receiver.write(rows("1", "2"), 0.0), store)
    coordinator = Coordinator(settings, elapsed=lambda: 9.0)
    again = latest(coordinator, end, store)
    plan = run(coordinator.plan(end, again), store)
    assert [(part.rows, list(part.left_out)) for part in plan.parts] == [(2, [1])]


def test_a_lost_folder_continues_behind_the_checkpoint(tmp_path: Path) -> None:
    store, settings = LocalFolder(tmp_path), CoordinatorSettings(subscription=SUBSCRIPTION)
    receiver = Receiver(
        SUBSCRIPTION, Acknowledge.COMMITTED, max_age=60, share=10**9, elapsed=lambda: 0.0
    )
    run(receiver.start(), store)
    run(receiver.write(rows("1"), 0.0), store)
    start = Offset(7, "chain")
    for _ in range(2):
        coordinator = Coordinator(settings, elapsed=lambda: 0.0)
        assert run(coordinator.latest(start), store) == Offset(8, "chain")


def test_a_folder_of_another_subscription_is_refused(tmp_path: Path) -> None:
    store = LocalFolder(tmp_path)
    run(
        Coordinator(CoordinatorSettings(subscription=SUBSCRIPTION), elapsed=float).latest(START),
        store,
    )
    other = Receiver(
        "projects/p/subscriptions/t", Acknowledge.STORED, max_age=1, share=1, elapsed=float
    )
    with pytest.raises(SpoolError, match=f"belongs to {SUBSCRIPTION}"):
        run(other.start(), store)
