"""docs/spark-monitor.md names each metric, member, phase and exit code of `pullstream ingest`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml

if tuple(sys.version_info) < (3, 11):
    pytest.skip("pullstream.spark needs Python 3.11", allow_module_level=True)

from pullstream.cli.ingest import EXIT_CODES
from pullstream.cli.ingest_metrics import metrics_of
from pullstream.cli.ingest_view import Moment, Rates, progress_record
from pullstream.spark.ingest.report import IngestReport, Phase, Receivers, Totals
from pullstream.spark.session.source_session import REPORTED

PAGE = (Path(__file__).parents[2] / "docs" / "spark-monitor.md").read_text("utf-8")
REPORT = IngestReport(Totals(1, 1, 1, 1), receivers=Receivers(1, 1, 0))
MOMENT = Moment(REPORT, Rates(0.0, 0.0), 1, 0.0)


def section(title: str) -> str:
    """Return the text below a heading of the page, up to the next."""
    found = re.search(rf"^## {title}$(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert found is not None
    return found[1]


def first_cells(text: str) -> list[str]:
    return re.findall(r"^\| `?([\w.]+)`? \|", text, re.M)


def test_the_spark_monitor_page_lists_every_metric_of_an_ingest_job() -> None:
    """Alerts use only these."""
    names = [
        f"{metric.name}_total" if metric.is_counter else metric.name
        for metric in metrics_of(MOMENT)
    ]
    assert first_cells(section("Prometheus"))[1:] == names
    rules = re.search(r"```yaml\n(.*?)```", PAGE, re.S)
    assert rules is not None
    (group,) = yaml.safe_load(rules[1])["groups"]
    used = {name for rule in group["rules"] for name in re.findall(r"pullstream_\w+", rule["expr"])}
    assert used <= set(names)


def test_the_spark_monitor_page_lists_every_member_of_a_progress_line() -> None:
    record = progress_record(MOMENT)
    row = re.search(r"^\| `progress` \| (.*) \|$", section("JSON"), re.M)
    assert row is not None
    assert re.findall(r"`(\w+)`", row[1]) == [
        name for name in record if name not in ("type", "time")
    ]


def test_the_spark_monitor_page_lists_every_phase_and_exit_code_of_an_ingest_job() -> None:
    phases = re.search(r"^\| phase \| (.*) \|$", PAGE, re.M)
    assert phases is not None
    assert re.findall("`([^`]+)`", phases[1]) == [phase.value for phase in Phase]
    codes = {int(code) for code in first_cells(section("Exit codes")) if code.isdecimal()}
    assert codes == {0, 1, 2, 130, *EXIT_CODES.values()}


def test_the_spark_monitor_page_lists_every_member_of_the_sources_report() -> None:
    assert sorted(first_cells(section("Your own pipelines"))[1:]) == sorted(REPORTED)
