"""Counting pytest's reports."""

from __future__ import annotations

from pathlib import Path

from .outcome import Outcome, read_report

REPORT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest">
  <testcase name="test_good"/>
  <testcase name="test_bad"><failure message="assert 1 == 2&#10;more">trace</failure></testcase>
  <testcase name="test_unready"><error message="no fixture">trace</error></testcase>
  <testcase name="test_ends_badly"/>
  <testcase name="test_ends_badly"><error message="teardown">trace</error></testcase>
  <testcase name="test_idle"><skipped message="needs rights">x.py:1</skipped></testcase>
  <testcase name="test_idle_too"><skipped message="needs rights">x.py:2</skipped></testcase>
</testsuite></testsuites>
"""


def test_the_outcome_of_an_upstream_suite_counts_each_test_case_of_its_report_once(
    tmp_path: Path,
) -> None:
    """A case that passes and then fails to clean up counts as failed."""
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    outcome = read_report(report, {"needs BigQuery": 1})
    assert outcome == Outcome(
        passed=1,
        failed={
            "test_bad": "assert 1 == 2",
            "test_unready": "no fixture",
            "test_ends_badly": "teardown",
        },
        skipped={"needs rights": 2},
        beyond={"needs BigQuery": 1},
    )
    assert outcome.cases == 4
