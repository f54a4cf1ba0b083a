"""The state folder of an ingestion job, read without Spark."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pullstream.spark.errors import FailureCause, IngestError
from pullstream.spark.ingest.status import IngestStatus
from pullstream.spark.protocol.layout import Owner
from pullstream.spark.stores import LocalFolder
from tests.completed import run_command
from tests.subscriber.command_line import pullstream
from tests.subscriber.spark.protocol.files import write_plan, write_segment

SPOOL = "0f5c2c0e8f1e4d399a5e3a2d3a8ff001"
JOB = {"subscription": "projects/p/subscriptions/orders", "to": "/data/orders", "format": "delta"}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Return the state of a job whose batch 5 is planned and whose batch 4 is committed.

    Spark's numbers of them are 1 and 0.
    """
    folder = tmp_path / "orders" / "_state"
    for name in ("spool", "checkpoint/offsets", "checkpoint/commits"):
        (folder / name).mkdir(parents=True)
    content = {"id": "run", **JOB, "columns": {"id": "bigint"}}
    (folder / "job.json").write_text(json.dumps(content))
    spool = LocalFolder(folder / "spool")
    spool.create("owner/000000000000.json", Owner(0, "s", "", 0, SPOOL).text())
    for number in (0, 1):
        offsets = f'v1\n{{}}\n{{"plan": {number + 4}, "chain": "c"}}'
        (folder / "checkpoint" / "offsets" / str(number)).write_text(offsets)
    (folder / "checkpoint" / "commits" / "0").write_text("v1\n{}")
    write_segment(spool, 4, 1000.0)
    write_segment(spool, 5, 3000.0, 2000.5)
    write_segment(spool, 6, 4000.0)
    for number in (4, 5):
        write_plan(spool, number, number)
    return folder


@pytest.mark.parametrize("place", [".", ".."])
def test_the_status_of_an_ingest_job_has_its_identity_its_batches_and_what_waits(
    state: Path, place: str
) -> None:
    """A committed segment does not wait. The table's folder leads to the state, too."""
    found = IngestStatus.of((state / place).resolve())
    assert found.folder == state
    assert found.job == JOB
    assert found.spool == SPOOL
    assert (found.planned, found.committed) == (5, 4)
    assert (found.spark_planned, found.spark_committed) == (1, 0)
    assert [(each.plan, each.rows, each.oldest) for each in found.segments] == [
        (5, 2, 2000.5),
        (None, 1, 4000.0),
    ]
    assert (found.rows, found.oldest) == (3, 2000.5)


def test_the_status_of_an_ingest_job_is_there_before_its_first_batch(tmp_path: Path) -> None:
    """A run that ended before Spark started has written only the job's identity."""
    (tmp_path / "job.json").write_text(json.dumps({"id": "run", **JOB, "columns": {}}))
    found = IngestStatus.of(tmp_path)
    assert (found.spool, found.planned, found.committed) == (None, None, None)
    assert (found.spark_planned, found.spark_committed) == (None, None)
    assert (found.rows, found.oldest, list(found.segments)) == (0, None, [])


def test_the_status_command_shows_the_state_for_people_and_for_machines(state: Path) -> None:
    """No subscription and no server is needed."""
    text = pullstream("ingest", "status", str(state.parent))
    assert text.code == 0, text.stderr
    assert text.lines[:7] == [
        f"state: {state}",
        *(f"{name}: {value}" for name, value in JOB.items()),
        f"spool: {SPOOL}",
        "last planned batch: 5 (Spark's own number: 1)",
        "last committed batch: 4 (Spark's own number: 0)",
    ]
    assert text.lines[7] == "waiting segments: 2 with 3 messages"
    assert text.lines[8].startswith("  batch 5: 2 messages, ")
    assert text.lines[9].startswith("  not planned: 1 messages, ")
    (told,) = pullstream("ingest", "status", str(state), "--json").objects
    assert (told["type"], told["job"], told["messages"]) == ("result", JOB, 3)
    assert (told["planned"], told["committed"]) == (5, 4)
    assert (told["sparkPlanned"], told["sparkCommitted"]) == (1, 0)
    assert [one["plan"] for one in told["segments"]] == [5, None]
    assert told["segments"][0]["oldest"] == "1970-01-01T00:33:20.500Z"
    assert told["oldestSeconds"] > 1e9


def test_the_status_command_of_a_folder_without_state_fails_with_exit_code_5(
    tmp_path: Path,
) -> None:
    """The error names the missing files, and is the last object of the JSON."""
    result = pullstream("ingest", "status", str(tmp_path), "--json")
    assert result.code == 5
    assert "there is no state of a job in" in result.stderr
    told: dict[str, Any] = result.objects[-1]
    assert (told["type"], told["exitCode"], told["cause"]) == ("error", 5, "state")
    with pytest.raises(IngestError, match=r"neither job\.json nor _state/job\.json") as caught:
        IngestStatus.of(tmp_path)
    assert caught.value.cause is FailureCause.STATE


def test_the_status_of_an_ingest_job_is_read_without_pyspark(state: Path) -> None:
    """It starts no Java and is there at once."""
    script = (
        "import sys; from pathlib import Path\n"
        "from pullstream.spark.ingest.status import IngestStatus\n"
        f"IngestStatus.of(Path({str(state)!r}))\n"
        "print('pyspark' in sys.modules)"
    )
    assert run_command([sys.executable, "-c", script], check=True).stdout.strip() == "False"
