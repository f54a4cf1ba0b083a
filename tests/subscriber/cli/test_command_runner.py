"""Commands that run for messages, and their end by a signal."""

from __future__ import annotations

import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from pullstream.cli.command_runner import CommandRunner
from tests.subscriber.streaming.fakes import TIMEOUT

RECORD = {"messageId": "1", "publishTime": "", "orderingKey": "", "attributes": {}}


def test_stopping_the_command_runner_terminates_a_command_that_is_just_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process exists, and the thread that started it has not continued yet."""
    start = subprocess.Popen
    is_started, may_continue = threading.Event(), threading.Event()
    processes: list[subprocess.Popen[bytes]] = []
    codes: list[int] = []

    def start_slowly(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        processes.append(start(*args, **options))
        is_started.set()
        assert may_continue.wait(TIMEOUT)
        return processes[0]

    monkeypatch.setattr(subprocess, "Popen", start_slowly)
    runner = CommandRunner("exec sleep 600", "s")
    running = threading.Thread(target=lambda: codes.append(runner.run(RECORD, b"")), daemon=True)
    terminating = threading.Thread(target=runner.terminate)
    running.start()
    assert is_started.wait(TIMEOUT)
    try:
        terminating.start()
        # It waits for the start. Without this wait it would end here and terminate nothing.
        terminating.join(0.1)
        may_continue.set()
        running.join(TIMEOUT)
        assert codes == [-signal.SIGTERM]
        terminating.join(TIMEOUT)
    finally:
        processes[0].kill()


def test_a_stopped_command_runner_starts_no_command(tmp_path: Path) -> None:
    """The command would outlive the program."""
    runner = CommandRunner(f"echo > {tmp_path / 'file'}", "s")
    assert runner.run(RECORD, b"") == 0
    (tmp_path / "file").unlink()
    runner.terminate()
    assert runner.run(RECORD, b"") == -signal.SIGTERM
    assert not (tmp_path / "file").exists()
