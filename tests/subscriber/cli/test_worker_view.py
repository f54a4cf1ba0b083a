"""The views of a worker for machines, pipes and people."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console
from rich.live import Live

from pullstream.cli.worker_view import JsonView, LinesView, TableView
from pullstream.worker.scoreboard import Score
from pullstream.worker.supervisor import Row

SCORE = Score(
    rate=12.34, acked=100, nacked=5, errors=2, running=3, held=1, load=0.5, p99=0.25, restarts=4
)
RUNNING = [Row(1, 4711, "streaming", SCORE), Row(2, None, "pausing", Score())]
ENDED = [Row(1, None, "ended", SCORE)]

RECORD = {
    "messagesPerSecond": 12.3,
    "acked": 100,
    "nacked": 5,
    "running": 3,
    "held": 1,
    "load": 0.5,
    "errors": 2,
    "restarts": 4,
    "p99Seconds": 0.25,
}


def test_the_worker_command_with_json_prints_message_counts_per_process_and_in_total(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The object has each process and the total."""
    JsonView().show(ENDED, SCORE)
    process = {"process": 1, "pid": None, "state": "ended", **RECORD}
    assert json.loads(capsys.readouterr().out) == {"processes": [process], "total": RECORD}


def test_the_worker_command_prints_one_line_with_total_message_counts_to_a_pipe(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The line has the total of all processes, as pairs of a name and a value."""
    LinesView().show(ENDED, SCORE)
    assert capsys.readouterr().out == (
        "processes=1 state=ended messagesPerSecond=12.3 acked=100 nacked=5 running=3 held=1 "
        "load=0.5 errors=2 restarts=4 p99Seconds=0.25\n"
    )


@pytest.mark.parametrize("view", [JsonView(), LinesView()])
def test_the_worker_command_prints_every_tenth_count_update_and_the_last_to_a_pipe(
    view: JsonView, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line per second would be too much for a log."""
    for _ in range(25):
        view.show(RUNNING, SCORE)
    assert capsys.readouterr().out.count("\n") == 2
    view.show(ENDED, SCORE)
    assert capsys.readouterr().out.count("\n") == 1


def test_the_worker_command_prints_notes_about_its_processes_to_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Notes go to stderr."""
    JsonView().remark("process 1 is gone")
    assert capsys.readouterr() == ("", "process 1 is gone\n")


def test_the_worker_command_prints_a_table_with_a_row_for_each_process_to_a_terminal() -> None:
    """Each process and the total have a row. A message cannot control the terminal."""
    out = io.StringIO()
    live = Live(console=Console(file=out, width=100), auto_refresh=False)
    with live:
        view = TableView(live)
        view.show(RUNNING, SCORE)
        view.printed("hello \x1b[2J")
    lines = [line.split() for line in out.getvalue().splitlines()]
    assert ["hello", "\\x1b[2J"] in lines
    assert lines[-4][:4] == ["process", "state", "msg/s", "acked"]
    figures = ["12", "100", "5", "3", "1", "0.50", "2", "4", "250"]
    assert lines[-3] == ["1", "streaming", *figures]
    assert lines[-2][:3] == ["2", "pausing", "0"]
    assert lines[-1] == ["total", *figures]
