"""Tests of docs/fetch.md: its programs run, its tables are complete."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, get_args

import pytest

from pullstream.fetch import Reason
from pullstream_emulator import Emulator
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.messages import pulls_pb2 as pulls
from tests.subscriber.command_line import pullstream

GUIDE = (Path(__file__).parents[2] / "docs" / "fetch.md").read_text(encoding="utf-8")
TOPIC = "projects/shop/topics/orders"
SUBSCRIPTION = "projects/shop/subscriptions/billing"


@pytest.fixture
def shop(pubsub_emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """Create the guide's subscription, on the broker from the environment."""
    monkeypatch.setenv("PUBSUB_PROJECT_ID", "shop")
    config = pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC)
    pubsub_emulator.inspect(lambda engine: engine.create_topic(pubsub.Topic(name=TOPIC)))
    pubsub_emulator.inspect(lambda engine: engine.create_subscription(config))
    return pubsub_emulator


def test_the_programs_of_the_fetch_guide_run_without_an_error(
    shop: Emulator, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each program finds a message, and the last one a subscription."""
    names: dict[str, Any] = {}
    programs = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    for program in programs:
        shop.publish(TOPIC, "a book", customer="anna")
        exec(program, names)
    names["client"].close()
    assert len(programs) == 4
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["b'a book' {'customer': 'anna'}", "1 messages, drained", "2000 0"]
    # Published before the last one, which does not fetch.
    assert shop.backlog(SUBSCRIPTION) == 1


def test_the_shell_commands_of_the_fetch_guide_have_valid_arguments(shop: Emulator) -> None:
    """All but the endless one are run."""
    commands = re.findall(r"^pullstream (.*?)(?: +#.*)?$", GUIDE, re.MULTILINE)
    assert len(commands) == 7
    shop.publish(TOPIC, "a book")
    for command in commands:
        if "--repeat" not in command:
            result = pullstream(*shlex.split(command))
            assert result.code == 0, (command, result.stderr)


def test_the_fetch_guide_lists_every_reason_for_the_end_of_a_fetch() -> None:
    """The names are those in the code."""
    named = re.findall(r'^\| `"(\w+)"` \|', GUIDE, re.MULTILINE)
    assert set(named) == set(get_args(Reason))


def test_the_fetch_guide_lists_every_field_of_the_subscription_state() -> None:
    """The subscription's name is left out."""
    rows = GUIDE.partition("\n| field |")[2].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in rows.splitlines()[2:]]
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    fields = {field.name for field in pulls.SubscriptionState.DESCRIPTOR.fields}
    assert named == fields - {"subscription"}
