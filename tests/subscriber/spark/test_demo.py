"""`make demo-spark`, in the existing session."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLES = Path(__file__).parents[3] / "samples"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(("sample", "promises"), [("spark_windows", 5), ("spark_table", 3)])
def test_the_spark_sample_programs_end_successfully_with_correct_results(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], sample: str, promises: int
) -> None:
    """Each sample checks its own results and prints them."""
    assert runpy.run_path(str(SAMPLES / f"{sample}.py"))["main"]() == 0
    told = capsys.readouterr().out
    assert told.count("  ok  ") == promises
    assert "BROKEN" not in told
