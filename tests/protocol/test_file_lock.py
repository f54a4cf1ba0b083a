"""FileLock: one holder at a time, in one process or several."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
from pathlib import Path

import pytest

from pullstream_protocol import file_lock
from pullstream_protocol.file_lock import FileLock, holder_of
from tests.completed import run_command
from tests.subscriber.streaming.fakes import TIMEOUT
from tests.threads import on_threads

TRY = """
import sys, pathlib, pullstream_protocol.file_lock as m
try:
    m.FileLock(pathlib.Path(sys.argv[1]))
except BlockingIOError:
    print("taken")
else:
    print("free")
"""


def elsewhere(path: Path) -> str:
    """Return whether another process finds the lock taken or free."""
    ran = run_command([sys.executable, "-c", TRY, str(path)], check=True)
    return ran.stdout.strip()


def test_a_held_file_lock_cannot_be_acquired_again_in_this_or_another_process(
    tmp_path: Path,
) -> None:
    """The lock is held in this process and in others, until the lock is released."""
    path = tmp_path / "a.lock"
    lock = FileLock(path)
    with pytest.raises(BlockingIOError):
        FileLock(path)
    assert elsewhere(path) == "taken"
    lock.release()
    assert elsewhere(path) == "free"


def test_a_file_lock_that_was_removed_is_not_held_by_who_opened_the_file_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second holder locks the file that has the name now, as a third one would."""
    path = tmp_path / "a.lock"
    holders = [FileLock(path)]
    taken = file_lock._take

    def late(descriptor: int, *, wait: bool) -> None:
        if holders:
            holders.pop().remove()
        taken(descriptor, wait=wait)

    monkeypatch.setattr(file_lock, "_take", late)
    second = FileLock(path)
    assert elsewhere(path) == "taken"
    second.remove()
    assert not path.exists()


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="this system has no O_NOFOLLOW")
def test_creating_a_file_lock_on_a_symbolic_link_raises_an_os_error(tmp_path: Path) -> None:
    """The target of the link is not changed."""
    target = tmp_path / "other"
    target.write_text("content")
    for name, leads_to in (("a.lock", target), ("b.lock", tmp_path / "nothing")):
        (tmp_path / name).symlink_to(leads_to)
        with pytest.raises(OSError, match="must not be a symbolic link"):
            FileLock(tmp_path / name)
    assert target.read_text() == "content"
    assert not (tmp_path / "nothing").exists()


def test_acquiring_a_held_file_lock_with_wait_returns_when_the_holder_releases_the_lock(
    tmp_path: Path,
) -> None:
    """The wait ends when the holder releases it, and the lock has one holder again."""
    path = tmp_path / "a.lock"
    held, taken = FileLock(path), queue.SimpleQueue[FileLock]()
    with on_threads(lambda: taken.put(FileLock(path, wait=True))):
        with pytest.raises(queue.Empty):
            taken.get(timeout=0.2)
        held.release()
        lock = taken.get(timeout=TIMEOUT)
    assert elsewhere(path) == "taken"
    lock.release()


def test_opening_and_closing_a_lock_file_in_the_holding_process_does_not_release_the_lock(
    tmp_path: Path,
) -> None:
    """A POSIX lock would be released."""
    path = tmp_path / "a.lock"
    lock = FileLock(path)
    path.open().close()
    assert elsewhere(path) == "taken"
    lock.release()


def test_a_lock_file_names_the_process_of_its_holder_and_is_readable_by_its_owner_only(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.lock"
    assert holder_of(path) is None
    lock = FileLock(path)
    assert holder_of(path) == os.getpid()
    assert path.stat().st_mode & 0o777 == 0o600
    lock.release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes fork")
def test_a_forked_child_process_does_not_keep_the_file_lock_of_its_parent(tmp_path: Path) -> None:
    """The lock ends with its holder, even if a child of that continues to run."""
    program = f"""
import os, pathlib, time, pullstream_protocol.file_lock as m
lock = m.FileLock(pathlib.Path({str(tmp_path / "a.lock")!r}))
if os.fork():
    os._exit(0)
print("child", flush=True)
os.close(1)
time.sleep(60)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read() == "child\n"
        process.wait()
        try:
            assert elsewhere(tmp_path / "a.lock") == "free"
        finally:
            os.killpg(process.pid, 9)
