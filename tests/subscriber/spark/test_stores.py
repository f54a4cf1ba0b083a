"""The two kinds of stores behave in the same way, and hold a spool."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Barrier, Thread

import pyarrow as pa
import pytest

from pullstream.spark.protocol.acknowledge import Acknowledge
from pullstream.spark.protocol.coordinator import START, Coordinator, CoordinatorSettings
from pullstream.spark.protocol.receiver import Decision, Receiver
from pullstream.spark.protocol.storage import Delete, Get, Steps, probe, run
from pullstream.spark.stores import Bucket, LocalFolder
from tests.subscriber.spark.power_cut import PowerCut
from tests.subscriber.spark.protocol.batch_rows import rows_of
from tests.subscriber.streaming.fakes import TIMEOUT


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> LocalFolder | Bucket:
    if request.param == "folder":
        return LocalFolder(tmp_path / "spool")
    pytest.importorskip("obstore")
    return Bucket("memory:///", {})


def test_a_store_keeps_the_promises_of_a_spool(store: LocalFolder | Bucket) -> None:
    probe(store, "name")


def test_files_below_a_folder_are_listed_with_their_times(store: LocalFolder | Bucket) -> None:
    assert list(store.files("a")) == []
    for path in ("a/x", "a/b/y", "ab/z"):
        assert store.create(path, b"12")
        assert not store.create(path, b"3")
    found = {file.path: file for file in store.files("a")}
    assert found.keys() == {"a/x", "a/b/y"}
    assert {file.size for file in found.values()} == {2}
    assert abs(found["a/x"].modified - found["a/b/y"].modified) < 60
    store.delete("a/x")
    store.delete("a/x")
    assert store.get("a/x") is None


def test_a_batch_goes_through_a_store(store: LocalFolder | Bucket) -> None:
    receiver = Receiver("s", Acknowledge.STORED, max_age=60, share=10**9, elapsed=float)
    run(receiver.start(), store)
    rows = pa.record_batch({"message_id": ["1", "x", "1"]})
    assert run(receiver.write(rows, 0.0), store).decision is Decision.ACKNOWLEDGE
    coordinator = Coordinator(CoordinatorSettings(subscription="s"), elapsed=float)
    end = run(coordinator.latest(START), store)
    assert end is not None
    plan = run(coordinator.plan(START, end), store)
    table = rows_of(plan, [store.get(part.segment.path) for part in plan.parts])
    assert table.column("message_id").to_pylist() == ["1", "x"]
    assert run(coordinator.latest(end), store) is None
    run(coordinator.tidy(), store)
    assert coordinator.known_ids.find(["1", "x", "2"], 0)[0] == {"1", "x"}


def test_files_of_a_bucket_are_read_and_deleted_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One after the other, 100 reads would take 100 times as long."""
    pytest.importorskip("obstore")
    bucket = Bucket("memory:///", {})
    paths = [f"a/{number}" for number in range(8)]
    for path in paths:
        bucket.create(path, path.encode())
    # Opens when all of them are there.
    gate = Barrier(len(paths), timeout=TIMEOUT)
    get, delete = Bucket.get, Bucket.delete

    def wait_and_get(store: Bucket, path: str) -> bytes | None:
        gate.wait()
        return get(store, path)

    def wait_and_delete(store: Bucket, path: str) -> None:
        gate.wait()
        delete(store, path)

    monkeypatch.setattr(Bucket, "get", wait_and_get)
    monkeypatch.setattr(Bucket, "delete", wait_and_delete)

    def read_and_delete() -> Steps[list[bytes | None]]:
        found: list[bytes | None] = yield Get(paths)
        yield Delete(paths)
        return found

    assert run(read_and_delete(), bucket) == [path.encode() for path in paths]
    assert list(bucket.files()) == []


def test_one_of_many_writers_creates_a_file(tmp_path: Path) -> None:
    created: list[int] = []

    def write(number: int) -> None:
        # Each has a store, as processes have.
        if LocalFolder(tmp_path / "spool").create("a/b/c", f"{number}".encode()):
            created.append(number)

    threads = [Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert LocalFolder(tmp_path / "spool").get("a/b/c") == f"{created[0]}".encode()
    assert len(created) == 1
    assert [path.name for path in (tmp_path / "spool/a/b").iterdir()] == ["c"]


def test_a_created_file_survives_a_power_failure_with_all_its_folders(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    with PowerCut() as power:
        LocalFolder(folder).create("a/b/c", b"1")
        assert power.left(tmp_path) == {"spool/a/b/c"}
        (folder / "unsynced").write_bytes(b"1")
        assert power.left(tmp_path) == {"spool/a/b/c"}


@pytest.fixture
def old(tmp_path: Path) -> LocalFolder:
    """A folder with remains of writers, all of them changed in 1970."""
    folder = LocalFolder(tmp_path / "spool")
    folder.create("seg/a/1", b"1")
    folder.create("seg/b/1", b"1")
    folder.delete("seg/b/1")
    (tmp_path / "spool/seg/a/.2.abc.tmp").write_bytes(b"half")
    for path in (tmp_path / "spool").rglob("*"):
        os.utime(path, (1000, 1000))
    return folder


def test_remains_of_writers_are_deleted_when_they_are_old(old: LocalFolder) -> None:
    old.remove_remains(999)
    assert {*old.list()} == {"seg/a/1", "seg/a/.2.abc.tmp"}
    old.remove_remains(1001)
    assert {*old.list()} == {"seg/a/1"}
    assert [path.name for path in (old.folder / "seg").iterdir()] == ["a"]


def test_a_writer_whose_folder_was_removed_creates_it_again(old: LocalFolder) -> None:
    writer = LocalFolder(old.folder)
    assert writer.create("seg/b/1", b"1")
    writer.delete("seg/b/1")
    (old.folder / "seg/b").rmdir()
    with PowerCut() as power:
        assert writer.create("seg/b/1", b"2")
        assert "seg/b/1" in power.left(old.folder)
