"""A sample of the trials of `make damage`: all damage of a data directory is noticed."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulator.quick_disk import QUICK_DISK
from tests.soak.damage import Trials, report

pytestmark = pytest.mark.xdist_group("storage-damage")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=QUICK_DISK) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def trials(folder: Path) -> Trials:
    return Trials(folder, seed=1)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


@pytest.mark.parametrize(
    ("kind", "count"),
    [("flip_database", 30), ("flip_log", 15), ("change_rows", 30), ("cut_files", 20)],
)
def test_a_broker_with_a_damaged_data_directory_refuses_to_start_or_serves_all_data(
    trials: Trials, kind: str, count: int
) -> None:
    """Either the start is refused in one line, or the broker serves everything as before."""
    getattr(trials, kind)(count)
    assert not trials.failures, "\n".join(report(trials))
    assert trials.outcomes.total()
