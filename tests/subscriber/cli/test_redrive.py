"""`pullstream redrive`: from a dead-letter subscription back to the topics."""

from __future__ import annotations

import pytest

from pullstream import SubscriberClient
from pullstream_emulator import Emulator
from pullstream_protocol import names
from pullstream_protocol.errors import PermissionDenied
from tests.subscriber.command_line import pullstream

PROJECT = "test-project"
ORDERS = names.topic_path(PROJECT, "orders")
DEAD = names.topic_path(PROJECT, "dead")
BILLING = names.subscription_path(PROJECT, "billing")
DEAD_LETTERS = names.subscription_path(PROJECT, "dead-letters")


@pytest.fixture(autouse=True)
def emulator(broker: Emulator) -> Emulator:
    """Return a broker with three rejected messages and one of another source."""
    for topic in ("orders", "dead"):
        pullstream("topics", "create", topic)
    pullstream("subscriptions", "create", "billing", "--topic", "orders")
    pullstream("subscriptions", "create", "dead-letters", "--topic", "dead")
    for number, reason in enumerate(("price", "price", "stock")):
        broker.publish(ORDERS, f"order {number}", ordering_key="c-1", origin="shop")
        with SubscriberClient() as client:
            (message,) = client.fetch(BILLING)
            message.reject(reason, DEAD)
            broker.wait_until_acked(BILLING)
    broker.publish(DEAD, "stranger")
    return broker


def redrive(*args: str) -> tuple[int, list[str], str]:
    result = pullstream("redrive", "dead-letters", "--timeout", "1", *args)
    return result.code, result.lines, result.stderr


def test_the_redrive_command_publishes_dead_letters_to_their_source_topics_in_order(
    emulator: Emulator,
) -> None:
    """The messages have their original content. A message without a source stays."""
    code, _, errors = redrive()
    assert code == 1
    assert "moved 3, 1 without a source\n" in errors
    assert "1 messages name no subscription that exists; give the topic with --to" in errors
    again = emulator.messages(ORDERS)[3:]
    assert [message.data for message in again] == [b"order 0", b"order 1", b"order 2"]
    assert [message.ordering_key for message in again] == ["c-1"] * 3
    assert [dict(message.attributes) for message in again] == [{"origin": "shop"}] * 3
    assert emulator.backlog(DEAD_LETTERS) == 1
    assert emulator.backlog(BILLING) == 3


def test_the_redrive_command_publishes_dead_letters_to_the_given_topic(emulator: Emulator) -> None:
    """Messages without a source are published, too."""
    assert redrive("--to", "orders") == (0, [], "moved 4\n")
    assert emulator.backlog(DEAD_LETTERS) == 0
    assert redrive("--to", "orders") == (0, [], "no messages\n")


def test_the_redrive_command_with_a_filter_moves_only_matching_messages(emulator: Emulator) -> None:
    """The others stay, and their delivery is not counted as an attempt."""
    expression = 'attributes.pullstream_reject_reason = "price"'
    assert redrive("--filter", expression) == (0, [], "moved 2, 2 not matching\n")
    assert emulator.backlog(DEAD_LETTERS) == 2
    code, _, errors = redrive("--filter", "reason=price")
    assert code == 2
    assert "--filter: You have passed an invalid argument" in errors


def test_a_dry_run_of_the_redrive_command_prints_the_messages_and_moves_none(
    emulator: Emulator,
) -> None:
    """Each message is printed with its target and reason."""
    code, lines, errors = redrive("--to", "orders", "--dry-run")
    assert (code, errors) == (0, "would move 4\n")
    assert lines[2] == f"3 to {ORDERS}: stock"
    assert lines[3] == f"4 to {ORDERS}"
    result = pullstream("redrive", "dead-letters", "--timeout", "1", "--dry-run", "--json")
    assert result.objects[0] == {"messageId": "1", "topic": ORDERS, "reason": "price"}
    assert emulator.backlog(DEAD_LETTERS) == 4
    assert len(emulator.messages(ORDERS)) == 3


def test_the_redrive_command_moves_at_most_the_requested_number_of_messages(
    emulator: Emulator,
) -> None:
    """The rest stays."""
    assert redrive("--to", "orders", "--limit", "2") == (0, [], "moved 2\n")
    assert emulator.backlog(DEAD_LETTERS) == 2


def test_the_redrive_command_acknowledges_no_dead_letter_that_it_could_not_publish(
    emulator: Emulator,
) -> None:
    """Nothing is acknowledged without a confirmation."""
    emulator.faults.error("Publish", PermissionDenied("not you"), times=1)
    code, _, errors = redrive("--filter", "attributes:origin")
    assert code == 1
    assert "3 messages were not moved: 403 not you" in errors
    assert emulator.backlog(DEAD_LETTERS) == 4
