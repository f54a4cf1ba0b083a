"""`make demo-spark`, in the existing session."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE = Path(__file__).parents[3] / "samples" / "spark_windows.py"


@pytest.mark.slow
@pytest.mark.spark
def test_the_spark_sample_program_ends_successfully_with_correct_results(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sample checks its own results and prints them."""
    assert runpy.run_path(str(SAMPLE))["main"]() == 0
    told = capsys.readouterr().out
    assert told.count("  ok  ") == 5
    assert "BROKEN" not in told
