"""A data directory that cannot be used: one clear error, and nothing in it is given up."""

from __future__ import annotations

import socket
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from emulator import Emulator
from emulator.config import ConfigError
from emulator.storage.database import FILE_NAME, FORMAT
from emulator.storage.opening import StorageError
from tests.emulator.broker import SUBSCRIPTION
from tests.emulator.program import COMMAND, error_of
from tests.emulator.wire import PATIENCE, Wire

# Found in the file as they are, and long enough to fill pages of it.
MARK = b"a message that can be found in the file "
MESSAGES = [(MARK + str(number).encode()) * 50 for number in range(300)]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """One that a broker has filled and left."""
    with Emulator(data_dir=tmp_path) as emulator:
        wire = Wire(emulator.endpoint)
        wire.create()
        wire.publish(*(message.decode() for message in MESSAGES))
        wire.close()
    return tmp_path


def refusal(directory: Path) -> str:
    """Why no broker starts on a directory, now or when it is tried again."""
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


def test_two_brokers_cannot_share_a_directory(directory: Path) -> None:
    """The second says so; the first goes on."""
    with Emulator(data_dir=directory) as emulator:
        with pytest.raises(StorageError, match=r"pullstream\.db is in use by another broker"):
            Emulator(data_dir=directory)
        assert emulator.backlog(SUBSCRIPTION) == len(MESSAGES)
    with Emulator(data_dir=directory) as emulator:
        assert emulator.backlog(SUBSCRIPTION) == len(MESSAGES)


@pytest.mark.parametrize(("format", "age"), [(FORMAT + 1, "a newer"), (FORMAT - 1, "an older")])
def test_a_database_of_another_version_is_refused(directory: Path, format: int, age: str) -> None:
    """It names both formats."""
    change(directory, f"PRAGMA user_version = {format}")
    assert refusal(directory) == (
        f"{directory / FILE_NAME} was written by {age} version of pullstream: it has format "
        f"{format}, and this version has format {FORMAT}"
    )


def test_somebody_elses_database_is_refused(tmp_path: Path) -> None:
    """A file of the right name that has tables, but not ours."""
    change(tmp_path, "CREATE TABLE accounts (id INTEGER)")
    assert refusal(tmp_path) == f"{tmp_path / FILE_NAME} is not a database of pullstream's"


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: b"x" * len(data), id="no database at all"),
        pytest.param(lambda data: data[: len(data) // 2], id="cut off"),
        pytest.param(lambda data: data[:8192] + bytes(len(data) - 8192), id="zeros"),
        pytest.param(lambda data: data.replace(MARK, MARK.upper(), 1), id="a changed message"),
        pytest.param(lambda data: data.replace(b"/topics/orders", b"/topics/orderz"), id="a name"),
    ],
)
def test_a_damaged_database_is_refused(directory: Path, damage: Callable[[bytes], bytes]) -> None:
    """Whatever is wrong with it: it is never taken for an empty one, nor for a shorter one."""
    file = directory / FILE_NAME
    before = file.read_bytes()
    file.write_bytes(damage(before))
    assert file.read_bytes() != before
    assert refusal(directory).startswith(f"{file} is damaged: ")


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    """With the system's words."""
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"cannot open .*File exists"):
        Emulator(data_dir=tmp_path / "file")


@pytest.mark.parametrize("reason", ["port", "config"])
def test_a_start_that_fails_lets_go_of_the_directory(directory: Path, reason: str) -> None:
    """For the next, which has what it wants."""
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


def test_a_directory_is_made_where_there_is_none(tmp_path: Path) -> None:
    """With its parents."""
    with Emulator(data_dir=tmp_path / "some" / "where"):
        assert (tmp_path / "some" / "where" / FILE_NAME).exists()


def test_the_program_says_it_in_one_line(directory: Path) -> None:
    """And the exit code is 1."""
    with Emulator(data_dir=directory):
        ran = subprocess.run(
            [*COMMAND, "--data-dir", str(directory)],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == f"Error: {directory / FILE_NAME} is in use by another broker\n"


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_what_is_to_be_on_disk_needs_a_directory(durability: str) -> None:
    with pytest.raises(StorageError, match=f"durability {durability} needs a data directory"):
        Emulator(durability=durability)
    error = error_of("--durability", durability)
    assert error.startswith(f"Error: durability {durability} needs a data directory")


def test_what_is_only_in_memory_needs_none() -> None:
    with Emulator(durability="memory") as emulator:
        assert emulator.endpoint
