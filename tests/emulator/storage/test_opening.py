"""Data directories that cannot be used: one clear error, and no data are given up."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.config import ConfigError
from pullstream_emulator.storage.database import LOCK_NAME, Database
from pullstream_emulator.storage.errors import StorageError
from pullstream_emulator.storage.marks import MARK_NAME, Mark, MarkFile
from pullstream_emulator.storage.rebuilding import FILE_NAME, LOG_NAME
from pullstream_emulator.storage.tables import FORMAT, NOTES
from tests.completed import run_command
from tests.emulator.broker import SUBSCRIPTION, TOPIC
from tests.emulator.crash import copy_running
from tests.emulator.program import COMMAND, error_of, running
from tests.emulator.wire import TIMEOUT, Wire

# Text that the test can find in the file, long enough to fill several pages.
MARK = b"a message that can be found in the file "
MESSAGES = [(MARK + str(number).encode()) * 50 for number in range(300)]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a directory that a broker has filled and released."""
    with Emulator(data_dir=tmp_path) as emulator, Wire(emulator.endpoint) as wire:
        wire.create_with(*(message.decode() for message in MESSAGES))
    return tmp_path


def refusal(directory: Path) -> str:
    """Return the error with which brokers fail to start, at the first and second attempt."""
    reasons = []
    for _ in range(2):
        with pytest.raises(StorageError) as refused:
            Emulator(data_dir=directory)
        reasons.append(str(refused.value))
    assert reasons[0] == reasons[1]
    return reasons[0]


def change(directory: Path, statement: str) -> None:
    with closing(sqlite3.connect(directory / FILE_NAME)) as database:
        database.execute(statement)
        database.commit()


def test_two_brokers_cannot_share_a_data_directory(directory: Path) -> None:
    """The second broker reports an error, and the first one continues."""
    with Emulator(data_dir=directory) as emulator:
        with pytest.raises(
            StorageError,
            match=rf"is in use by another broker \(process {os.getpid()}\)$",
        ):
            Emulator(data_dir=directory)
        assert emulator.backlog(SUBSCRIPTION) == len(MESSAGES)
    with Emulator(data_dir=directory) as emulator:
        assert emulator.backlog(SUBSCRIPTION) == len(MESSAGES)


@pytest.mark.parametrize(("format", "age"), [(FORMAT + 1, "a newer"), (FORMAT - 1, "an older")])
def test_a_broker_refuses_to_start_with_a_database_of_another_format_version(
    directory: Path, format: int, age: str
) -> None:
    """The error names both formats."""
    change(directory, f"PRAGMA user_version = {format}")
    (directory / MARK_NAME).unlink()
    assert refusal(directory) == (
        f"{directory / FILE_NAME} was written by {age} version of pullstream: it has format "
        f"{format}, and this version has format {FORMAT}"
    )


def test_a_broker_refuses_to_start_with_a_database_of_another_program(tmp_path: Path) -> None:
    """The file has the right name, but other tables."""
    change(tmp_path, "CREATE TABLE accounts (id INTEGER)")
    assert refusal(tmp_path) == f"{tmp_path / FILE_NAME} is not a pullstream database"


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: b"x" * len(data), id="no database at all"),
        pytest.param(lambda data: data[: len(data) // 2], id="cut off"),
        pytest.param(lambda data: data[:8192] + bytes(len(data) - 8192), id="zeros"),
        pytest.param(lambda data: data.replace(MARK, MARK.upper(), 1), id="a changed message"),
        pytest.param(
            lambda data: data.replace(b"CREATE TABLE attempts", b"CREATE TABLE attempt\xf3"),
            id="a definition of a table, no UTF-8",
        ),
        pytest.param(lambda data: data.replace(b"/topics/orders", b"/topics/orderz"), id="a name"),
    ],
)
def test_a_broker_refuses_to_start_with_a_damaged_database(
    directory: Path, damage: Callable[[bytes], bytes]
) -> None:
    """The database is never treated as empty or as shorter, whatever the damage is."""
    file = directory / FILE_NAME
    before = file.read_bytes()
    file.write_bytes(damage(before))
    assert file.read_bytes() != before
    assert refusal(directory).startswith(f"{directory} is damaged: ")
    # --recover starts with the remaining data.
    with Emulator(data_dir=directory, recover=True):
        pass
    with Emulator(data_dir=directory):
        pass


def test_a_broker_refuses_to_start_if_the_data_directory_is_a_file(tmp_path: Path) -> None:
    """The error has the system's text."""
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"cannot use .*: File exists"):
        Emulator(data_dir=tmp_path / "file")


@pytest.mark.parametrize("reason", ["port", "config"])
def test_a_failed_start_of_a_broker_releases_the_lock_of_the_data_directory(
    directory: Path, reason: str
) -> None:
    """The next start with correct options succeeds."""
    wrong = {"topics": [{"name": "projects/test/topics/goog"}]}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1] if reason == "port" else 0
        config = wrong if reason == "config" else None
        emulator = Emulator(data_dir=directory, port=port, config=config)
        with pytest.raises((OSError, ConfigError)):
            emulator.start()
    with Emulator(data_dir=directory) as another:
        assert another.backlog(SUBSCRIPTION) == len(MESSAGES)
    if reason == "port":
        with emulator:
            assert emulator.backlog(SUBSCRIPTION) == len(MESSAGES)


def test_a_starting_broker_creates_a_missing_data_directory(tmp_path: Path) -> None:
    """The parents are created, too."""
    with Emulator(data_dir=tmp_path / "some" / "where"):
        assert (tmp_path / "some" / "where" / FILE_NAME).exists()


def test_the_broker_program_reports_a_data_directory_in_use_in_one_line(directory: Path) -> None:
    """The exit code is 1."""
    with Emulator(data_dir=directory):
        ran = run_command([*COMMAND, "--data-dir", str(directory)])
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == f"Error: {directory} is in use by another broker (process {os.getpid()})\n"


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_creating_a_broker_with_durability_disk_or_fsync_needs_a_data_directory(
    durability: str,
) -> None:
    with pytest.raises(StorageError, match=f"durability {durability} needs a data directory"):
        Emulator(durability=durability)
    error = error_of("--durability", durability)
    assert error.startswith(f"Error: durability {durability} needs a data directory")


def test_a_broker_with_durability_memory_starts_without_a_data_directory() -> None:
    with Emulator(durability="memory") as emulator:
        assert emulator.endpoint


# ---- the lock ----------------------------------------------------------------------------------


def test_reading_the_files_of_a_data_directory_does_not_release_the_lock_of_the_broker(
    directory: Path,
) -> None:
    """A second broker exits at once, although this process has opened and closed every file."""
    with Emulator(data_dir=directory):
        for file in directory.iterdir():
            file.open().close()
        assert error_of("--data-dir", str(directory)) == (
            f"Error: {directory} is in use by another broker (process {os.getpid()})\n"
        )


# ---- permissions -------------------------------------------------------------------------------


def modes(directory: Path) -> set[str]:
    return {oct(file.stat().st_mode & 0o777) for file in directory.iterdir()}


@pytest.mark.skipif(os.name != "posix", reason="only POSIX has modes")
def test_files_of_the_data_directory_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    """The folders are private, too, also while the broker runs."""
    before = os.umask(0)
    try:
        with Emulator(data_dir=tmp_path / "some" / "where") as emulator:
            wire = Wire(emulator.endpoint)
            wire.create()
            wire.close()
            names = {file.name for file in (tmp_path / "some" / "where").iterdir()}
            assert names == {FILE_NAME, LOG_NAME, MARK_NAME, LOCK_NAME}
            assert modes(tmp_path / "some" / "where") == {"0o600"}
            assert modes(tmp_path / "some") == modes(tmp_path) == {"0o700"}
    finally:
        os.umask(before)


@pytest.mark.skipif(os.name != "posix", reason="only POSIX has modes")
def test_a_starting_broker_keeps_the_mode_of_an_existing_data_directory(
    tmp_path: Path,
) -> None:
    """The directory may be mounted, or shared on purpose."""
    (tmp_path / "mounted").mkdir()
    (tmp_path / "mounted").chmod(0o2775)
    with Emulator(data_dir=tmp_path / "mounted"):
        assert oct((tmp_path / "mounted").stat().st_mode & 0o7777) == "0o2775"


def test_the_broker_refuses_an_empty_text_as_data_directory() -> None:
    """An unset variable in a script must not fill the current directory."""
    with pytest.raises(StorageError, match="the data directory is empty text"):
        Emulator(data_dir="")
    assert error_of("--data-dir", "").startswith("Error: the data directory is empty text")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a directory that is read-only")
@pytest.mark.parametrize("name", ["/proc/self", "/proc/self/new"])
def test_a_broker_refuses_to_start_with_a_read_only_data_directory(name: str) -> None:
    """The error is not a disk error. Permissions alone would not stop root from writing."""
    with pytest.raises(StorageError, match=rf"^cannot use {name}: "):
        Emulator(data_dir=name)


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() == 0, reason="root may write anywhere")
def test_a_broker_refuses_to_start_with_a_data_directory_without_write_permission(
    directory: Path,
) -> None:
    directory.chmod(0o500)
    (directory / LOCK_NAME).unlink()
    with pytest.raises(StorageError, match="it cannot be written"):
        Emulator(data_dir=directory)


# ---- damage ------------------------------------------------------------------------------------


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """Return the directory of a broker killed after 20 confirmed publishes at class fsync."""
    original, copy = tmp_path / "running", tmp_path / "killed"
    with Emulator(data_dir=original, durability="fsync") as emulator:
        wire = Wire(emulator.endpoint)
        wire.create()
        for number in range(20):
            wire.publish(f"message {number}")
        copy_running(original, copy)
        wire.close()
    return copy


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def test_a_broker_starts_with_the_data_directory_of_a_killed_broker_without_any_loss(
    killed: Path,
) -> None:
    with Emulator(data_dir=killed) as emulator:
        assert emulator.backlog(SUBSCRIPTION) == 20


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        pytest.param(
            lambda d: flip(d / LOG_NAME, (d / LOG_NAME).stat().st_size // 2),
            r"commits are lost, made between .* \d+ of 20 messages are lost",
            id="a bit in the middle of the log",
        ),
        pytest.param(
            lambda d: flip(d / LOG_NAME, -1),
            "the last 1 of .* commits are lost, .* 1 of 20 messages are lost",
            id="the last bit of the log",
        ),
        pytest.param(
            lambda d: (d / LOG_NAME).unlink(),
            f"{LOG_NAME} is damaged or missing, .* 20 of 20 messages are lost",
            id="no log",
        ),
        pytest.param(
            lambda d: os.truncate(d / LOG_NAME, (d / LOG_NAME).stat().st_size - 1),
            "the last 1 of .* commits are lost",
            id="a log that is cut off",
        ),
        pytest.param(
            lambda d: (d / FILE_NAME).unlink(),
            f"{FILE_NAME} is missing; .* 20 of 20 messages are lost",
            id="no database",
        ),
        pytest.param(
            lambda d: os.truncate(d / FILE_NAME, 0), f"{FILE_NAME} is empty", id="an empty database"
        ),
        pytest.param(lambda d: (d / MARK_NAME).unlink(), f"{MARK_NAME} is missing", id="no mark"),
        pytest.param(
            lambda d: os.truncate(d / MARK_NAME, 5),
            f"{MARK_NAME} is damaged .it has 5 bytes",
            id="a mark that is cut off",
        ),
    ],
)
def test_a_broker_refuses_to_start_with_damaged_data_of_a_killed_broker(
    killed: Path, damage: Callable[[Path], object], told: str
) -> None:
    """SQLite alone would take most of it for the incomplete end of a log."""
    damage(killed)
    before = {file.name: file.read_bytes() for file in killed.iterdir()}
    text = refusal(killed)
    assert re.search(told, text), text
    assert text.endswith(
        "start with --recover (in a program: recover=True) to continue with the remaining data"
    )
    before.pop(LOCK_NAME, None)
    assert {name: (killed / name).read_bytes() for name in before} == before


def test_an_incomplete_unconfirmed_commit_at_the_end_of_the_database_log_is_no_damage(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that stops during a commit writes only a part of it.

    Nothing in it was confirmed.
    """
    whole = (killed / LOG_NAME).read_bytes()
    monkeypatch.setattr(Database, "confirm", lambda database: None)
    with closing(Database(killed)) as database:
        with database.transaction():
            database.put(NOTES, [("feed", "unconfirmed", b"x" * 50_000)])
        torn = (killed / LOG_NAME).read_bytes()
        files = {name: (killed / name).read_bytes() for name in (FILE_NAME, MARK_NAME)}
    assert len(torn) > len(whole)
    for size in range(len(whole), len(torn), 7919):
        for name, data in {**files, LOG_NAME: torn[:size]}.items():
            (killed / name).write_bytes(data)
        with closing(Database(killed)) as database:
            assert not database.rows(NOTES).fetchall()


def test_a_broker_refuses_to_start_with_an_older_copy_of_the_database_file(directory: Path) -> None:
    """The copy may come from a backup of one file."""
    old = (directory / FILE_NAME).read_bytes()
    with Emulator(data_dir=directory) as emulator, Wire(emulator.endpoint) as wire:
        wire.publish("newer")
    (directory / FILE_NAME).write_bytes(old)
    assert "1 of 301 messages are lost" in refusal(directory)


def test_a_broker_refuses_to_start_with_the_database_of_another_data_directory(
    directory: Path, killed: Path
) -> None:
    (killed / LOG_NAME).unlink()
    shutil.copy(directory / FILE_NAME, killed)
    assert "are from different directories" in refusal(killed)


# ---- recovery ----------------------------------------------------------------------------------


def test_recovery_of_a_damaged_data_directory_keeps_undamaged_data_and_lists_the_losses(
    killed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The damaged files are kept.

    The next start needs no recovery, and no message ID is repeated.
    """
    with Emulator(data_dir=shutil.copytree(killed, killed.with_name("whole"))) as emulator:
        wire = Wire(emulator.endpoint)
        ids = {int(received.message.message_id) for received in wire.pull()}
        wire.close()
    damaged = (killed / LOG_NAME).stat().st_size // 2
    flip(killed / LOG_NAME, damaged)
    log = (killed / LOG_NAME).read_bytes()
    with Emulator(data_dir=killed, recover=True) as emulator:
        remaining = emulator.backlog(SUBSCRIPTION)
        assert 0 < remaining < 20
        told = [record.getMessage() for record in caplog.records]
        assert f"{killed} was damaged: {20 - remaining} of 20 messages are lost" in told
        assert re.search(
            rf"was recovered with .* {remaining} messages; the damaged files", told[-1]
        )
        assert int(emulator.publish(TOPIC, "new")) > max(ids)
    (aside,) = killed.glob("damaged-*")
    assert (aside / LOG_NAME).read_bytes() == log
    with Emulator(data_dir=killed) as emulator:
        assert emulator.backlog(SUBSCRIPTION) == remaining + 1


def test_a_broker_started_with_recover_keeps_all_data_of_an_undamaged_data_directory(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Emulator(data_dir=directory, recover=True) as emulator:
        assert emulator.backlog(SUBSCRIPTION) == len(MESSAGES)
    assert not caplog.records
    assert not list(directory.glob("damaged-*"))


def test_recovery_of_a_database_without_the_row_of_a_topic_keeps_the_messages_of_the_topic(
    directory: Path,
) -> None:
    """The subscriptions have the name of the topic. The settings are lost."""
    change(directory, "DELETE FROM topics")
    with Emulator(data_dir=directory, recover=True) as emulator:
        assert emulator.backlog(SUBSCRIPTION) == len(MESSAGES)
        assert int(emulator.publish(TOPIC, "new")) > len(MESSAGES)


def test_recovery_of_a_database_without_its_acknowledgements_redelivers_the_messages(
    directory: Path,
) -> None:
    """A message is rather delivered twice than never."""
    with Emulator(data_dir=directory) as emulator, Wire(emulator.endpoint) as wire:
        wire.acknowledge(*[received.ack_id for received in wire.pull(100)])
    change(directory, "DELETE FROM chunks")
    with Emulator(data_dir=directory, recover=True) as emulator:
        assert emulator.backlog(SUBSCRIPTION) >= len(MESSAGES) - 100


def test_an_interrupted_recovery_of_a_data_directory_is_completed_by_the_next_start(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start completes it without an option."""
    flip(killed / LOG_NAME, -1)

    def stop(directory: Path, mark: Mark) -> None:
        raise OSError("the machine stops here")

    with monkeypatch.context() as patch:
        patch.setattr(MarkFile, "create", stop)
        with pytest.raises(StorageError, match="the machine stops here"):
            Emulator(data_dir=killed, recover=True)
    assert not (killed / LOG_NAME).exists()
    with Emulator(data_dir=killed) as emulator:
        assert emulator.backlog(SUBSCRIPTION) == 19


def test_with_the_recover_option_the_broker_program_starts_with_a_damaged_data_directory(
    killed: Path,
) -> None:
    """Without the option the start is refused with exit code 1, one line and no traceback."""
    (killed / LOG_NAME).unlink()
    assert error_of("--data-dir", str(killed)).startswith(f"Error: {killed} is damaged: ")
    with running("--data-dir", str(killed), "--recover") as (process, _):
        process.terminate()
        _, log = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0
    assert f"WARNING {killed} was damaged: 20 of 20 messages are lost" in log.splitlines()


def test_the_broker_refuses_the_recover_and_max_loss_options_without_a_data_directory() -> None:
    with pytest.raises(StorageError, match="recover needs a data directory"):
        Emulator(recover=True)
    with pytest.raises(StorageError, match="max_loss needs a data directory"):
        Emulator(max_loss=1)


def test_creating_an_emulator_with_a_max_loss_of_zero_raises_a_value_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_loss is 0; it must be more than 0 seconds"):
        Emulator(data_dir=tmp_path, max_loss=0)


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="this system has no O_NOFOLLOW")
@pytest.mark.parametrize("name", [LOCK_NAME, f"{MARK_NAME}.new"])
def test_a_broker_does_not_follow_a_symbolic_link_in_place_of_a_file_of_its_data_directory(
    tmp_path: Path, name: str
) -> None:
    """The broker refuses the lock file, and replaces a file that it writes."""
    target = tmp_path / "other"
    target.write_text("content")
    directory = tmp_path / "data"
    directory.mkdir()
    (directory / name).symlink_to(target)
    if name == LOCK_NAME:
        with pytest.raises(StorageError, match=f"{name} must not be a symbolic link; remove it"):
            Database(directory)
    else:
        Database(directory).close()
    assert target.read_text() == "content"
