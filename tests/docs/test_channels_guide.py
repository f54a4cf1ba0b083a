"""Tests of docs/channels.md: its programs run, one after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pullstream import TopicAdminClient
from pullstream_emulator import Emulator
from pullstream_emulator.pytest_plugin import pubsub_emulator as pubsub_emulator
from tests.contract.channel_peers import BareSubscriber, data_of, statistics
from tests.subscriber.streaming.fakes import eventually

GUIDE = (Path(__file__).parents[2] / "docs" / "channels.md").read_text(encoding="utf-8")
LISTEN, LOSSES, PUBLISH = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
TOPIC = "projects/test-project/topics/orders"


@pytest.fixture
def topic(pubsub_emulator: Emulator) -> str:
    with TopicAdminClient() as topics:
        topics.create_topic(name=TOPIC)
    return TOPIC


def test_the_listener_program_of_the_channels_guide_receives_messages_of_its_key(
    pubsub_emulator: Emulator, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {"topic": topic}
    exec(LISTEN, names)
    printed: list[str] = []

    def has_printed(line: str) -> bool:
        printed.extend(capsys.readouterr().out.splitlines())
        return line in printed

    eventually(lambda: has_printed("listening"))
    pubsub_emulator.publish(topic, "paid", ordering_key="order-8")
    pubsub_emulator.publish(topic, "paid", ordering_key="order-7")
    eventually(lambda: has_printed("order-7 b'paid'"))
    assert "order-8 b'paid'" not in printed
    names["client"].close()


def test_the_second_program_of_the_channels_guide_keeps_one_waiting_message_per_key(
    pubsub_emulator: Emulator, topic: str
) -> None:
    """While there is no poll, one message of a key is kept."""
    held = pubsub_emulator.faults.drop("Poll")
    names: dict[str, Any] = {"topic": topic}
    exec(LOSSES, names)
    eventually(lambda: statistics(pubsub_emulator).interests == 1)
    for number in range(3):
        pubsub_emulator.publish(topic, str(number), ordering_key="a")
    assert statistics(pubsub_emulator).waiting == 1
    held.lift()
    eventually(lambda: statistics(pubsub_emulator).waiting == 0)
    names["client"].close()


def test_the_server_program_of_the_channels_guide_publishes_messages_to_channels() -> None:
    """The channels need no declaration."""
    names: dict[str, Any] = {}
    exec(PUBLISH, names)
    publisher = names["publisher"]
    bare = BareSubscriber(f"localhost:{names['port']}")
    bare.subscribe("jobs", "7")
    assert publisher.publish("jobs", "7", "done") == 1
    assert data_of(bare.poll()) == ["done"]
    bare.close()
    publisher.close()
    names["server"].stop(None).wait()
