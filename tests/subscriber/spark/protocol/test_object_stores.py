"""Object stores keep the promises of a spool, and the protocol holds on them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from pullstream.spark.errors import SpoolError
from pullstream.spark.protocol.acknowledge import Acknowledge
from pullstream.spark.protocol.receiver import Decision
from pullstream.spark.protocol.storage import Get, Steps, Storage, probe, put, run
from pullstream.spark.stores import StoredFile, store_of
from tests.subscriber.spark.protocol import holes, world
from tests.subscriber.spark.protocol.flaky_proxy import flaky_proxy
from tests.subscriber.spark.protocol.random_world import RandomWorld
from tests.subscriber.spark.protocol.world import Store, World

Options = dict[str, str]
# Returns the storage of a folder that no other call returns.
NewStorage = Callable[[], Storage]

BUCKETS = {"s3": "s3://lake", "azure": "az://lake", "gcs": "gs://lake"}


@pytest.fixture(params=["folder", *BUCKETS])
def new_storage(request: pytest.FixtureRequest, tmp_path: Path) -> NewStorage:
    """A folder of this machine, or of a local server of each kind of object store."""
    kind = request.param
    base = str(tmp_path) if kind == "folder" else BUCKETS[kind]
    options: Options = {} if kind == "folder" else request.getfixturevalue(kind)
    return lambda: store_of(f"{base}/{uuid.uuid4().hex}", options)


class StoreBehind(Store):
    """The store of a world, with its files in another storage, and the times of the world."""

    def __init__(self, world: World, storage: Storage) -> None:
        super().__init__(world)
        self._storage = storage

    def create(self, path: str, data: bytes) -> bool:
        if self._storage.create(path, data):
            super().put(path, b"")
            return True
        return False

    def put(self, path: str, data: bytes) -> None:
        self._storage.put(path, data)
        super().put(path, b"")

    def get(self, path: str) -> bytes | None:
        return self._storage.get(path)

    def open(self, path: str) -> pa.NativeFile:
        return self._storage.open(path)

    def files(self, prefix: str = "") -> Iterator[StoredFile]:
        for file in self._storage.files(prefix):
            yield file._replace(modified=self.files_by_path[file.path][1])

    def delete(self, path: str) -> None:
        self._storage.delete(path)
        super().delete(path)


def test_a_storage_keeps_the_promises_of_a_spool(new_storage: NewStorage) -> None:
    storage = new_storage()
    probe(storage, "name")
    assert storage.get("a/x") is None
    assert list(storage.files("a")) == []
    with pytest.raises(FileNotFoundError):
        storage.open("a/x")
    for path in ("a/x", "a/b/y", "ab/z"):
        assert storage.create(path, b"12")
        assert not storage.create(path, b"345")
        assert storage.get(path) == b"12"
    assert storage.open("a/x").read() == b"12"
    found = {file.path: file for file in storage.files("a")}
    assert found.keys() == {"a/x", "a/b/y"}
    assert {file.size for file in found.values()} == {2}
    assert abs(found["a/x"].modified - found["a/b/y"].modified) < 60
    assert {file.path for file in storage.files("")} == {"a/x", "a/b/y", "ab/z"}
    storage.put("a/x", b"6")
    assert storage.get("a/x") == b"6"
    for _ in range(2):
        storage.delete("a/x")
    assert {file.path for file in storage.files("a")} == {"a/b/y"}
    assert list(new_storage().files("")) == []


def test_one_of_many_writers_creates_a_file_in_a_storage(new_storage: NewStorage) -> None:
    storage = new_storage()
    with ThreadPoolExecutor(8) as pool:
        created = list(pool.map(lambda number: storage.create("a", b"%d" % number), range(8)))
    assert created.count(True) == 1
    assert storage.get("a") == b"%d" % created.index(True)


def test_many_files_are_read_and_deleted_at_the_same_time(new_storage: NewStorage) -> None:
    storage = new_storage()
    paths = [f"a/{number:03}" for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda path: storage.create(path, path.encode()), paths))

        def read() -> Steps[list[bytes | None]]:
            found: list[bytes | None] = yield Get([*paths, "a/none"])
            return found

        assert run(read(), storage) == [*(path.encode() for path in paths), None]
        list(pool.map(storage.delete, paths))
    assert list(storage.files("")) == []


@pytest.mark.parametrize("case", holes.HOLES[1], ids=lambda case: case.__name__)
def test_the_first_hole_is_closed_in_each_storage(
    new_storage: NewStorage, monkeypatch: pytest.MonkeyPatch, case: Callable[[], None]
) -> None:
    monkeypatch.setattr(world, "Store", lambda world: StoreBehind(world, new_storage()))
    case()


@pytest.mark.parametrize("acknowledge", Acknowledge)
def test_random_lives_on_each_storage_lose_and_double_nothing(
    new_storage: NewStorage, monkeypatch: pytest.MonkeyPatch, acknowledge: Acknowledge
) -> None:
    monkeypatch.setattr(world, "Store", lambda world: StoreBehind(world, new_storage()))
    for seed in (1, 5):
        RandomWorld(seed, acknowledge, ticks=60).live()


@pytest.mark.parametrize("losses", [1, 2])
def test_a_put_whose_answer_is_lost_has_succeeded(s3: Options, losses: int) -> None:
    """The client repeats the put, and the store refuses it, because the file exists."""
    with flaky_proxy(s3["aws_endpoint"]) as proxy:
        options = {**s3, "aws_endpoint": proxy.url}
        storage = store_of(f"s3://lake/{uuid.uuid4().hex}", options)
        proxy.losses = losses
        assert run(put("a", b"mine"), storage) == b"mine"
        assert proxy.requests.count("PUT") == losses + 1
        proxy.losses = losses
        assert run(put("a", b"another"), storage) == b"mine"
        proxy.losses = losses
        receiver = World().receiver()
        run(receiver.start(), storage)
        written = run(receiver.write(world.rows(["1"]), 1000.0), storage)
        assert written.decision is Decision.HOLD


def test_a_bucket_that_ignores_the_condition_of_a_put_is_refused(s3: Options) -> None:
    with flaky_proxy(s3["aws_endpoint"]) as proxy:
        proxy.ignored_headers = {"if-none-match"}
        storage = store_of(f"s3://lake/{uuid.uuid4().hex}", {**s3, "aws_endpoint": proxy.url})
        with pytest.raises(SpoolError, match="the storage cannot hold a spool"):
            probe(storage, "name")
