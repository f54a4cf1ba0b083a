"""`pullstream snapshots`."""

from __future__ import annotations

from pullstream_emulator import Emulator
from pullstream_protocol import names
from tests.subscriber.command_line import pullstream

SNAPSHOT = names.snapshot_path("test-project", "before")
SUBSCRIPTION = names.subscription_path("test-project", "billing")


def test_the_seek_command_to_a_snapshot_redelivers_messages_acked_after_the_snapshot(
    broker: Emulator,
) -> None:
    """The messages that were acknowledged since are delivered again."""
    pullstream("topics", "create", "orders")
    pullstream("subscriptions", "create", "billing", "--topic", "orders")
    pullstream("publish", "orders", "a")
    create = ("snapshots", "create", "before", "--subscription", "billing", "--label", "a=1")
    assert pullstream(*create).lines == [f"{SNAPSHOT} created"]
    pullstream("pull", "billing", "--ack")
    assert broker.backlog(SUBSCRIPTION) == 0
    assert pullstream("seek", "billing", "--snapshot", "before").code == 0
    assert broker.backlog(SUBSCRIPTION) == 1
    (listed,) = pullstream("snapshots", "list", "--json").objects
    (described,) = pullstream("snapshots", "describe", "before", "--json").objects
    assert listed == described
    assert (listed["name"], listed["labels"]) == (SNAPSHOT, {"a": "1"})
    assert pullstream("snapshots", "delete", "before").lines == [f"{SNAPSHOT} deleted"]
    assert pullstream("snapshots", "list").lines == []
