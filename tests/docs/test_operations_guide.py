"""Tests of docs/operations.md and samples/monitoring: every metric that they name exists."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pullstream import SubscriberClient, TopicAdminClient
from pullstream.telemetry.prometheus import PrometheusHooks
from pullstream_emulator import Emulator
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
MONITORING = ROOT / "samples" / "monitoring"
TOPIC, SUBSCRIPTION = "projects/p/topics/all", "projects/p/subscriptions/all"


def families(text: str) -> dict[str, set[str]]:
    """Return the labels of each metric of ours, by the name in expressions."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("pullstream_"):
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Return the metrics of a broker with a limit and a data directory, and of a subscriber."""
    registry = CollectorRegistry()
    hooks = PrometheusHooks(registry=registry)
    data = tmp_path_factory.mktemp("data")
    with (
        Emulator(rest=True, max_bytes=10**6, data_dir=data) as emulator,
        TopicAdminClient(endpoint=emulator.endpoint) as topics,
        SubscriberClient(endpoint=emulator.endpoint) as client,
    ):
        topics.create_topic(name=TOPIC)
        client.create_subscription(name=SUBSCRIPTION, topic=TOPIC)
        future = client.subscribe(SUBSCRIPTION, lambda message: message.ack(), hooks=hooks)
        topics.publish(TOPIC, [{"data": b"a"}])
        eventually(lambda: emulator.backlog(SUBSCRIPTION) == 0)
        eventually(lambda: b"pullstream_request_seconds_bucket" in generate_latest(registry))
        with urlopen(f"http://{emulator.endpoint}/metrics", timeout=TIMEOUT) as response:
            page = response.read().decode()
        found = families(page) | families(generate_latest(registry).decode())
        future.close(TIMEOUT)
    return found


def named(text: str) -> set[str]:
    return set(re.findall(r"\bpullstream_[a-z_]+", text))


def test_the_operations_guide_lists_every_metric_of_the_broker(
    metrics: dict[str, set[str]],
) -> None:
    """The table has each metric of the broker, with its labels."""
    rows = re.findall(r"^\| `(pullstream_broker_\w+)` \|([^|]*)\|", GUIDE, re.MULTILINE)
    labels = {
        "": set(),
        "topic": {"project", "topic"},
        "subscription": {"project", "topic", "subscription"},
        "version": {"version"},
    }
    expected = {name: labels[cell.strip()] for name, cell in rows}
    broker = {
        re.sub("_(bucket|sum|count)$", "", name): found - {"le"}
        for name, found in metrics.items()
        if name.startswith("pullstream_broker_")
    }
    assert expected == broker


def expressions(content: Any) -> list[str]:
    """Return the values of all keys `expr` in a document."""
    if isinstance(content, dict):
        own = [content["expr"]] if "expr" in content else []
        return own + [each for value in content.values() for each in expressions(value)]
    if isinstance(content, list):
        return [each for value in content for each in expressions(value)]
    return []


@pytest.mark.parametrize("name", ["alerts.yml", "grafana-dashboard.json"])
def test_the_alert_and_dashboard_expressions_use_only_existing_metrics(
    name: str, metrics: dict[str, set[str]]
) -> None:
    """An expression with another name would never match."""
    text = (MONITORING / name).read_text(encoding="utf-8")
    content = json.loads(text) if name.endswith(".json") else yaml.safe_load(text)
    found = expressions(content)
    assert len(found) >= 7
    used = {metric for each in found for metric in named(each)}
    assert used <= metrics.keys()
    for each in found:
        assert each.count("(") == each.count(")")


def test_the_alert_and_dashboard_expressions_compute_rates_only_of_counters(
    metrics: dict[str, set[str]],
) -> None:
    """A rate of a gauge has no meaning."""
    for name in ("alerts.yml", "grafana-dashboard.json"):
        text = (MONITORING / name).read_text(encoding="utf-8")
        rated = re.findall(r"(?:rate|increase)\((pullstream_\w+)", text)
        assert rated
        assert all(metric.endswith(("_total", "_bucket")) for metric in rated), name


def test_the_prometheus_configuration_of_the_project_loads_the_alert_rules() -> None:
    """The configuration names a file in the same folder."""
    content = yaml.safe_load((MONITORING / "prometheus.yml").read_text(encoding="utf-8"))
    assert [(MONITORING / each).is_file() for each in content["rule_files"]] == [True]
