"""Tests of docs/observability.md: its program runs, and its tables are complete."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from pullstream import SubscriberClient, TopicAdminClient
from pullstream.hooks import Hooks
from pullstream.runtime.lifecycle import SubscriptionState
from pullstream_emulator import Emulator
from tests.completed import run_command

from .test_prometheus import Page

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)

TOPIC = "projects/my-project/topics/all"
SUBSCRIPTIONS = ("orders", "invoices", "shipping", "billing")

# Run before the last block, which closes the client.
LOOK = """
import threading, urllib.request
for one in (future, outages, shipping, billing):
    while one.statistics().acked < 2:
        assert one.running()
        threading.Event().wait(0.01)
assert is_ready()
page = urllib.request.urlopen(f"http://localhost:{server.server_port}/metrics").read().decode()
print(*(line for line in page.splitlines() if "acked_total{" in line), sep="\\n")
print("loggers", logging.getLogger("pullstream.stream").getEffectiveLevel() == logging.INFO)
"""


def table_under(heading: str) -> list[str]:
    """Return the first cells of the first table under a heading, without the table's own head."""
    section = GUIDE.partition(f"\n{heading}\n")[2]
    rows = re.search(r"^\|.*?\n\|[-|]+\n((?:\|.*\n)+)", section, re.MULTILINE)
    assert rows is not None, heading
    return [row.split("|")[1].strip() for row in rows[1].splitlines()]


def test_the_example_program_of_the_observability_guide_runs_without_an_error(
    pubsub_emulator: Emulator,
) -> None:
    """All blocks run in one process, and each subscription has two messages to handle."""
    with TopicAdminClient() as topics, SubscriberClient() as client:
        topics.create_topic(name=TOPIC)
        for name in SUBSCRIPTIONS:
            full_name = f"projects/my-project/subscriptions/{name}"
            client.create_subscription(request={"name": full_name, "topic": TOPIC})
        topics.publish(TOPIC, [{"data": b"one"}, {"data": b"two"}])
    # Any free port, because two runs of this test may use one machine.
    program = "".join([*BLOCKS[:-1], LOOK, BLOCKS[-1]]).replace("9464", "0")
    result = run_command([sys.executable, "-c", program], cwd=ROOT)
    assert result.returncode == 0, result.stderr
    shipping = "projects/my-project/subscriptions/shipping"
    assert f'pullstream_acked_total{{subscription="{shipping}"}} 2.0' in result.stdout
    assert "loggers True" in result.stdout
    assert result.stdout.count('"name": "process billing"') == 2
    assert '"name": "pullstream.acked"' in result.stdout
    assert "SubscriptionState.CLOSED\n" in result.stdout


def test_the_table_of_the_observability_guide_lists_exactly_the_prometheus_metrics() -> None:
    """The table has these metrics and no others."""
    listed = {
        name.removesuffix("_total")
        for cell in table_under("### Metrics")
        for name in re.findall(r"`(\w+)`", cell)
    }
    assert listed == Page().types().keys()


def test_every_metric_in_an_alert_rule_of_the_observability_guide_is_exported() -> None:
    """Counters have the full name with `_total`."""
    types = Page().types()
    exported = {f"{name}_total" if kind == "counter" else name for name, kind in types.items()}
    alerts = table_under("### Alerts")
    used = {name for cell in alerts for name in re.findall(r"pullstream_\w+", cell)}
    assert len(alerts) >= 9
    assert used - exported == set()


def test_the_table_of_the_observability_guide_lists_every_telemetry_hook() -> None:
    """The name is that of its method."""
    listed = {cell.strip("`").partition("(")[0] for cell in table_under("## Hooks")}
    assert listed == {name for name in vars(Hooks) if not name.startswith("_")}


def test_the_table_of_the_observability_guide_lists_every_subscription_state() -> None:
    """The names are those in the code."""
    listed = [cell.strip("`") for cell in table_under("## State and statistics")]
    assert listed == [state.name for state in SubscriptionState]


def test_the_table_of_the_observability_guide_lists_every_logger_of_the_subscriber() -> None:
    """The table has each logger of the subscriber, and no other libraries'."""
    sources = (ROOT / "subscriber").rglob("*.py")
    found = {
        name
        for path in sources
        for name in re.findall(r"getLogger\((\"pullstream.*?)\)", path.read_text(encoding="utf-8"))
    }
    listed = {cell for cell in table_under("## Logs") if cell}
    assert {f"`{name.strip(chr(34))}`" for name in found} == listed
