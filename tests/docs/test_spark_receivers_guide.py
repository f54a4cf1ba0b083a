"""docs/spark-receivers.md lists the metrics, activities and exit codes of receivers."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

if tuple(sys.version_info) < (3, 11):
    pytest.skip("pullstream.spark needs Python 3.11", allow_module_level=True)

from pullstream.cli.receive_metrics import metrics_of
from pullstream.spark.receiver_processes.report import Activity, ReceiverReport

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "spark-receivers.md").read_text(encoding="utf-8")


def test_the_page_on_receivers_lists_every_metric() -> None:
    names = [
        f"{metric.name}_total" if metric.is_counter else metric.name
        for metric in metrics_of(ReceiverReport())
    ]
    assert re.findall(r"^\| `(pullstream_receive_\w+)`", PAGE, re.M) == names


def test_the_page_on_receivers_lists_every_activity() -> None:
    found = re.search(r"^The activities are (.*?)\.$", PAGE, re.M | re.S)
    assert found is not None
    assert re.findall(r"`([^`]+)`", found[1]) == [activity.value for activity in Activity]
