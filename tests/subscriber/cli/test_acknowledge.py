"""`pullstream ack` and `pullstream nack`."""

from __future__ import annotations

import pytest

from pullstream_emulator import Emulator
from pullstream_protocol import names
from tests.subscriber.command_line import pullstream

SUBSCRIPTION = names.subscription_path("test-project", "billing")


@pytest.fixture
def pulled(pubsub_emulator: Emulator) -> list[str]:
    """Publish three messages, pull them, and return their ack ids."""
    pullstream("topics", "create", "orders")
    pullstream("subscriptions", "create", "billing", "--topic", "orders")
    pullstream("publish", "orders", "a", "b", "c")
    return [each["ackId"] for each in pullstream("pull", "billing", "--json").objects]


def test_messages_are_settled_by_their_ids(pubsub_emulator: Emulator, pulled: list[str]) -> None:
    """A nacked message can be pulled again."""
    acked = pullstream("ack", "billing", pulled[0])
    assert acked.lines == [f"{SUBSCRIPTION} acknowledged: 1"]
    nacked = pullstream("nack", "billing", pulled[1], "--json")
    assert nacked.objects == [{"name": SUBSCRIPTION, "nacked": 1}]
    assert pubsub_emulator.backlog(SUBSCRIPTION) == 2
    assert pullstream("pull", "billing", "--wait", "0").lines == ["b"]


def test_ids_may_come_from_a_pipe(pubsub_emulator: Emulator, pulled: list[str]) -> None:
    """Empty lines are skipped."""
    acked = pullstream("ack", "billing", stdin="\n".join([*pulled, "", ""]).encode())
    assert acked.lines == [f"{SUBSCRIPTION} acknowledged: 3"]
    assert pubsub_emulator.backlog(SUBSCRIPTION) == 0


@pytest.mark.parametrize("command", ["ack", "nack"])
def test_ids_are_needed(command: str) -> None:
    """This is an error of usage."""
    result = pullstream(command, "billing", "--project", "p")
    assert result.code == 2
    assert "There are no ack ids" in result.stderr
