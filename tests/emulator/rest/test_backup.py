"""GET /v0/admin/backup: a tar archive of the data directory."""

from __future__ import annotations

import io
import tarfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from pullstream_emulator import Emulator
from pullstream_emulator.access import Access, Principal
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import TOPIC
from tests.emulator.rest_client import RestClient
from tests.subscriber.streaming.fakes import eventually

PATH = "/v0/admin/backup"


def fetch(emulator: Emulator, token: str = "") -> tuple[int, bytes]:
    with closing(RestClient(emulator.endpoint).connect()) as connection:
        connection.request("GET", PATH, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return answer.status, answer.read()


def names_in(archive: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return sorted(tar.getnames())


def test_each_of_several_concurrent_backup_requests_gets_a_complete_copy_of_the_database(
    tmp_path: Path,
) -> None:
    """The copies are made one after the other. A killed broker's copy is removed."""
    left = tmp_path / ".backup-left"
    left.mkdir()
    (left / "part").write_bytes(b"x")
    with Emulator(rest=True, data_dir=tmp_path) as emulator:
        emulator.inspect(lambda engine: engine.create_topic(pubsub.Topic(name=TOPIC)))
        with ThreadPoolExecutor(3) as pool:
            answers = list(pool.map(lambda _: fetch(emulator), range(3)))
        assert [status for status, _ in answers] == [200] * 3
        for _, archive in answers:
            assert names_in(archive) == ["pullstream.db", "pullstream.mark"]
        eventually(lambda: not list(tmp_path.glob(".backup-*")))


def test_a_starting_broker_removes_leftover_backup_files_from_its_data_directory(
    tmp_path: Path,
) -> None:
    """The target of the link stays."""
    target = tmp_path / "elsewhere"
    target.mkdir()
    (target / "file").write_bytes(b"x")
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    (data_dir / ".backup-link").symlink_to(target)
    (data_dir / ".backup-dangling").symlink_to(tmp_path / "nothing")
    (data_dir / ".backup-file").write_bytes(b"x")
    with Emulator(rest=True, data_dir=data_dir) as emulator:
        assert fetch(emulator)[0] == 200
        eventually(lambda: not list(data_dir.glob(".backup-*")))
    assert (target / "file").exists()


def test_a_backup_request_of_a_principal_without_access_to_all_projects_is_refused(
    tmp_path: Path,
) -> None:
    """A backup contains all projects."""
    access = Access({"all": Principal("root"), "ci": Principal("ci", frozenset({"test"}))})
    with Emulator(rest=True, data_dir=tmp_path, access=access) as emulator:
        assert [fetch(emulator, token)[0] for token in ("", "ci", "all")] == [401, 403, 200]


def test_a_backup_request_after_a_failed_disk_write_is_answered_with_an_error(
    tmp_path: Path,
) -> None:
    """The data directory may lack changes, so there is no copy. The call may be repeated."""
    with Emulator(rest=True, data_dir=tmp_path) as emulator:
        storage = emulator.broker.storage
        assert storage is not None
        write = storage._writer._write

        def fail(changes: object) -> None:
            raise OSError("no space left")

        storage._writer._write = fail
        try:
            # The writer notices the full disk with the next change.
            storage._writer.add(lambda ledger: None, urgent=True)[0].written.exception()
            status, body = fetch(emulator)
            assert status == 503
            assert b"no space left" in body
        finally:
            storage._writer._write = write
        storage.flush()
        assert fetch(emulator)[0] == 200
