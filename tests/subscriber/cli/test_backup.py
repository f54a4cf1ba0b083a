"""`pullstream emulator backup`: a consistent copy of a running broker's data directory."""

from __future__ import annotations

import io
import tarfile
import threading
from pathlib import Path

import pytest

from pullstream import PublisherClient, SubscriberClient, TopicAdminClient
from pullstream.cli.broker_admin import BrokerAdmin
from pullstream_emulator import Emulator
from tests.subscriber.command_line import Result, failure, pullstream, usage_error
from tests.subscriber.streaming.fakes import eventually

TOPIC, SUBSCRIPTION = "projects/p/topics/orders", "projects/p/subscriptions/billing"


def backup(emulator: Emulator, target: Path) -> Result:
    return pullstream("emulator", "backup", str(target), "--endpoint", emulator.endpoint)


def create(emulator: Emulator) -> None:
    with (
        TopicAdminClient(endpoint=emulator.endpoint) as topics,
        SubscriberClient(endpoint=emulator.endpoint) as subscriptions,
    ):
        topics.create_topic(name=TOPIC)
        subscriptions.create_subscription(name=SUBSCRIPTION, topic=TOPIC)


def test_a_backup_contains_the_messages_that_were_confirmed_before_the_backup_began(
    tmp_path: Path,
) -> None:
    """A broker starts with it, and the first broker continues."""
    target = tmp_path / "backups" / "one"
    with Emulator(rest=True, data_dir=tmp_path / "data") as emulator:
        create(emulator)
        emulator.publish(TOPIC, "before")
        result = backup(emulator, target)
        assert result.code == 0, result.stderr
        assert result.lines[0].startswith(f"{target}: ")
        emulator.publish(TOPIC, "after")
        assert emulator.backlog(SUBSCRIPTION) == 2
        data = tmp_path / "data"
        eventually(lambda: not any(path.is_dir() for path in data.iterdir()))
    with Emulator(data_dir=target) as restored:
        assert restored.backlog(SUBSCRIPTION) == 1
    assert target.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in target.iterdir()} == {0o600}


def test_a_backup_taken_while_publishers_run_contains_a_gapless_prefix_of_the_messages(
    tmp_path: Path,
) -> None:
    """Every copy has a prefix of the messages: none is missing before another one."""
    with Emulator(rest=True, data_dir=tmp_path / "data") as emulator:
        create(emulator)
        done = threading.Event()

        def publish() -> None:
            number = 0
            with PublisherClient(endpoint=emulator.endpoint) as publisher:
                while not done.is_set():
                    data = [str(number + each).encode() for each in range(50)]
                    publisher.publish_many(TOPIC, data).result()
                    number += 50

        publishing = threading.Thread(target=publish)
        publishing.start()
        try:
            targets = [tmp_path / f"copy-{number}" for number in range(4)]
            assert [backup(emulator, target).code for target in targets] == [0] * 4
        finally:
            done.set()
            publishing.join()
    sizes = []
    for target in targets:
        with (
            Emulator(data_dir=target) as restored,
            SubscriberClient(endpoint=restored.endpoint) as client,
        ):
            found: list[int] = []
            while len(found) < restored.backlog(SUBSCRIPTION):
                pulled = client.pull(subscription=SUBSCRIPTION, max_messages=1000)
                found += [int(each.message.data) for each in pulled.received_messages]
            assert sorted(found) == list(range(len(found)))
            sizes.append(len(found))
    assert sizes == sorted(sizes)
    assert sizes[-1] > 0


def test_the_backup_command_overwrites_no_existing_file(tmp_path: Path) -> None:
    """The error comes before the copy is made."""
    (tmp_path / "old").write_text("mine")
    error = usage_error("emulator", "backup", str(tmp_path), "--endpoint", "localhost:1")
    assert "exists and is not an empty folder" in error


def test_the_backup_command_fails_for_a_broker_that_keeps_data_in_memory(tmp_path: Path) -> None:
    """The target is not created."""
    with Emulator(rest=True) as emulator:
        result = backup(emulator, tmp_path / "copy")
    assert result.code != 0
    assert "has no data directory" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../escaped", "/etc/escaped"])
def test_the_backup_command_refuses_an_archive_whose_file_names_contain_folders(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name with a folder is refused."""

    def download(self: BrokerAdmin, path: str, file: Path) -> None:
        with tarfile.open(file, "w") as tar:
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())

    monkeypatch.setattr(BrokerAdmin, "download", download)
    error = failure("emulator", "backup", str(tmp_path / "t" / "copy"), "--endpoint", "h:1")
    assert "which is no file" in error
    assert not (tmp_path / "t" / "copy").exists()
