"""Ctrl-C and SIGTERM of `ingest` and `receive`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import NoReturn

import click
import pytest

from pullstream.cli.context import CliContext
from pullstream.cli.stop_request import StopRequest
from tests.subscriber.command_line import pullstream


def twice(*_: object, **__: object) -> None:
    """Send Ctrl-C twice to this process."""
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_a_command_to_stop_and_the_second_one_interrupts_it(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    request = StopRequest(CliContext(), "Stopping soon")
    with request.awaited():
        os.kill(os.getpid(), number)
        assert request.stop.wait(0)
        assert request.interrupted is (number is signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert capsys.readouterr().err == "Stopping soon; Ctrl-C again stops at once.\n"


def _ingest(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    runner = pytest.importorskip("pullstream.spark.ingest.runner")
    monkeypatch.setattr(runner, "run_in", twice)
    return ["ingest", "--to", "/nowhere"]


def _receive(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    running = pytest.importorskip("pullstream.spark.receiver_processes.running")
    monkeypatch.setattr(running, "run_until", twice)
    monkeypatch.setattr(running, "end_at_once", _end)
    return ["receive", "--spool", "/nowhere"]


def _end(code: int) -> NoReturn:
    raise click.exceptions.Exit(code)


@pytest.mark.parametrize("prepare", [_ingest, _receive])
def test_a_second_ctrl_c_ends_the_ingest_and_the_receive_command_with_exit_code_130(
    prepare: Callable[[pytest.MonkeyPatch], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last object says so, too."""
    words = prepare(monkeypatch)
    result = pullstream(*words, "--subscription", "projects/p/subscriptions/orders", "--json")
    assert result.code == 130
    assert result.objects[-1]["error"] == "interrupted"
