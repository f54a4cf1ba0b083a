"""`pullstream ack` and `pullstream nack`."""

from __future__ import annotations

import pytest

from pullstream_emulator import Emulator
from pullstream_protocol import names
from tests.subscriber.command_line import failure, pullstream, usage_error

SUBSCRIPTION = names.subscription_path("test-project", "billing")


@pytest.fixture
def pulled(broker: Emulator) -> list[str]:
    """Publish three messages, pull them, and return their ack ids."""
    pullstream("topics", "create", "orders")
    pullstream("subscriptions", "create", "billing", "--topic", "orders")
    pullstream("publish", "orders", "a", "b", "c")
    return [each["ackId"] for each in pullstream("pull", "billing", "--json").objects]


def test_the_ack_and_nack_commands_settle_messages_by_their_ack_ids(
    broker: Emulator, pulled: list[str]
) -> None:
    """A nacked message can be pulled again."""
    acked = pullstream("ack", "billing", pulled[0])
    assert acked.lines == [f"{SUBSCRIPTION} acknowledged: 1"]
    nacked = pullstream("nack", "billing", pulled[1], "--json")
    assert nacked.objects == [{"name": SUBSCRIPTION, "nacked": 1}]
    assert broker.backlog(SUBSCRIPTION) == 2
    assert pullstream("pull", "billing", "--wait", "0").lines == ["b"]


def test_the_ack_command_reads_ack_ids_from_a_pipe(broker: Emulator, pulled: list[str]) -> None:
    """Empty lines are skipped."""
    acked = pullstream("ack", "billing", stdin="\n".join([*pulled, "", ""]).encode())
    assert acked.lines == [f"{SUBSCRIPTION} acknowledged: 3"]
    assert broker.backlog(SUBSCRIPTION) == 0


@pytest.mark.parametrize("command", ["ack", "nack"])
def test_the_ack_command_without_ack_ids_is_a_usage_error(command: str) -> None:
    """The exit code is 2."""
    assert "There are no ack ids" in usage_error(command, "billing", "--project", "p")


def pull_with_one_nacked_before() -> tuple[str, list[str]]:
    """Pull three messages with exactly-once delivery, and nack the first."""
    pullstream("topics", "create", "orders")
    options = ("--topic", "orders", "--enable-exactly-once-delivery")
    pullstream("subscriptions", "create", "billing", *options)
    pullstream("publish", "orders", "a", "b", "c")
    old, *others = [each["ackId"] for each in pullstream("pull", "billing", "--json").objects]
    pullstream("nack", "billing", old)
    return old, others


def test_the_ack_command_prints_the_refused_ack_ids_and_the_number_of_accepted_ack_ids(
    broker: Emulator,
) -> None:
    """With exactly-once delivery, an id is valid until its lease ends."""
    old, others = pull_with_one_nacked_before()
    result = pullstream("ack", "billing", old, *others)
    assert result.code == 1
    assert result.lines == [f"{SUBSCRIPTION} acknowledged: 2"]
    assert "1 of 3 messages are not confirmed as acknowledged" in result.stderr
    assert f"{old}: INVALID_ACK_ID" in result.stderr
    assert broker.backlog(SUBSCRIPTION) == 1


def test_the_nack_command_prints_that_an_unconfirmed_nack_may_have_succeeded(
    broker: Emulator,
) -> None:
    """A server may apply a nack, not name it in its answer, and refuse it the second time."""
    old, others = pull_with_one_nacked_before()
    result = pullstream("nack", "billing", old, *others)
    assert result.code == 1
    counted = result.lines == [f"{SUBSCRIPTION} nacked: 2"]
    assert counted or result.stderr.count("may have succeeded") == 2
    assert len(pullstream("pull", "billing", "--json").objects) == 3


def test_the_ack_command_for_a_missing_subscription_prints_the_servers_error(
    broker: Emulator,
) -> None:
    """Here the subscription does not exist."""
    error = failure("ack", "missing", "x", "y", "--project", "test-project")
    assert "NOT_FOUND" in error
    assert "2 messages" not in error
