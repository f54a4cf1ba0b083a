"""`make demo-spark`: one sample in the existing session, and one that needs more cores."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.completed import run_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLES = Path(__file__).parents[3] / "samples"


@pytest.mark.slow
@pytest.mark.spark
def test_the_sample_of_windows_ends_successfully_with_correct_results(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """It checks its own results and prints them."""
    assert runpy.run_path(str(SAMPLES / "spark_windows.py"))["main"]() == 0
    told = capsys.readouterr().out
    assert told.count("  ok  ") == 5
    assert "BROKEN" not in told


@pytest.mark.slow
@pytest.mark.spark
def test_the_sample_of_a_table_ends_successfully_with_correct_results() -> None:
    """Its receivers need more cores than the session of the tests has."""
    result = run_command([sys.executable, SAMPLES / "spark_table.py"])
    assert result.returncode == 0, result.stdout
    assert result.stdout.count("  ok  ") == 3
    assert "BROKEN" not in result.stdout
