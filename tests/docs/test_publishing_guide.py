"""docs/publishing.md: its programs run, its commands are understood, its tables are complete."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pullstream import PublisherClient, PublisherHooks, SubscriberClient
from pullstream.telemetry import prometheus
from pullstream_emulator import Emulator
from tests.subscriber.command_line import pullstream

GUIDE = (Path(__file__).parents[2] / "docs" / "publishing.md").read_text(encoding="utf-8")
TOPIC = "projects/shop/topics/orders"


@pytest.fixture
def shop(pubsub_emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """Create the guide's topics, on the broker from the environment."""
    monkeypatch.setenv("PUBSUB_PROJECT_ID", "shop")
    with PublisherClient() as publisher, SubscriberClient() as subscriber:
        publisher.create_topic(name=TOPIC)
        publisher.create_topic(name="projects/shop/topics/dead")
        subscriber.create_subscription(name="projects/shop/subscriptions/billing", topic=TOPIC)
        subscriber.create_subscription(
            name="projects/shop/subscriptions/dead-letters", topic="projects/shop/topics/dead"
        )
    return pubsub_emulator


def test_the_programs_of_the_publishing_guide_run_without_an_error(
    shop: Emulator, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The programs share their names, as in one program."""
    registry = CollectorRegistry()
    hooks = prometheus.PrometheusPublisherHooks
    monkeypatch.setattr(prometheus, "PrometheusPublisherHooks", lambda: hooks(registry))
    names: dict[str, Any] = {}
    programs = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    for program in programs:
        exec(program, names)
    for name in ("publisher", "careful", "hedged", "observed"):
        names[name].close()
    assert len(programs) == 9
    assert capsys.readouterr().out.splitlines() == ["1", "3", "1000"]
    ordered = [message for message in shop.messages(TOPIC) if message.ordering_key]
    assert [message.data for message in ordered] == [b"0", b"1", b"2"]


def test_the_shell_commands_of_the_publishing_guide_have_valid_arguments(
    shop: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The endless one gets its lines from a file."""
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^\$ (?:.*\| )?pullstream (.*)$", GUIDE, re.MULTILINE)
    assert len(commands) == 6
    for command in commands:
        command, _, file = command.partition(" > ")
        arguments = shlex.split(command)
        if arguments[0] == "redrive":
            arguments += ["--timeout", "1"]
        result = pullstream(*arguments, stdin=b"customer-1,two books\n")
        assert result.code == 0, (command, result.stderr)
        if file:
            Path(file).write_bytes(result.stdout)


def table_under(heading: str, column: str) -> set[str]:
    """Return the names in the first cells of the table with this first heading."""
    section = GUIDE.partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    rows = section.partition(f"| {column} |")[2].partition("\n\n")[0].splitlines()[2:]
    return {name for row in rows for name in re.findall(r"`(\w+)", row.split("|")[1])}


def test_the_publishing_guide_lists_every_publisher_hook() -> None:
    """A hook has the name of its method."""
    methods = {name for name in vars(PublisherHooks) if not name.startswith("_")}
    assert table_under("## Observe a publisher", "method") == methods


def test_the_publishing_guide_lists_every_publisher_metric() -> None:
    """A metric has its name on the page that Prometheus reads."""
    registry = CollectorRegistry()
    prometheus.PrometheusPublisherHooks(registry)
    families = text_string_to_metric_families(generate_latest(registry).decode())
    names = {
        f"{family.name}_total" if family.type == "counter" else family.name for family in families
    }
    assert table_under("## Observe a publisher", "metric") == names
