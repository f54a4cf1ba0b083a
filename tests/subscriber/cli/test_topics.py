"""`pullstream topics`."""

from __future__ import annotations

import pytest

from pullstream_emulator import Emulator
from pullstream_protocol import names
from tests.subscriber.command_line import failure, pullstream, usage_error

pytestmark = pytest.mark.usefixtures("broker")

TOPIC = names.topic_path("test-project", "orders")


@pytest.fixture
def orders(broker: Emulator) -> None:
    assert pullstream("topics", "create", "orders", "--label", "team=a").code == 0


def test_the_topics_command_creates_lists_and_deletes_topics() -> None:
    """One command creates or deletes several topics."""
    created = pullstream("topics", "create", "orders", "refunds")
    refunds = names.topic_path("test-project", "refunds")
    assert created.lines == [f"{TOPIC} created", f"{refunds} created"]
    assert [line.split("\t")[0] for line in pullstream("topics", "list").lines] == [TOPIC, refunds]
    deleted = pullstream("topics", "delete", "orders", refunds)
    assert deleted.lines == [f"{TOPIC} deleted", f"{refunds} deleted"]
    assert pullstream("topics", "list").lines == []


def test_the_topics_create_command_sets_the_labels_and_the_message_retention_of_the_topic() -> None:
    """The description shows them with one path and value per line."""
    pullstream(
        *("topics", "create", "orders", "--label", "a=1", "--label", "b="),
        *("--message-retention-duration", "1.5h"),
    )
    lines = pullstream("topics", "describe", "orders").lines
    assert f"name: {TOPIC}" in lines
    assert "labels.a: 1" in lines
    assert "labels.b: " in lines
    assert "messageRetentionDuration: 5400s" in lines


@pytest.mark.parametrize(
    ("option", "text"),
    [
        (("--label", "a"), "'a' does not have the form KEY=VALUE"),
        (("--message-retention-duration", "soon"), "'soon' is not a duration such as 90s"),
    ],
)
def test_an_invalid_option_value_of_the_topics_command_is_a_usage_error(
    option: tuple[str, str], text: str
) -> None:
    """The error has the value and the form."""
    assert text in usage_error("topics", "create", "orders", *option)


def test_a_topics_create_command_that_fails_for_one_topic_keeps_the_topics_created_before(
    broker: Emulator, orders: None
) -> None:
    """Topics that were created earlier on the same line stay."""
    error = failure("topics", "create", "refunds", "orders", "others")
    assert error.startswith("Error: ALREADY_EXISTS: ")
    listed = [line.split("\t")[0] for line in pullstream("topics", "list").lines]
    assert [names.short_id(name) for name in listed] == ["orders", "refunds"]


@pytest.mark.usefixtures("orders")
def test_the_topics_update_command_changes_only_settings_given_by_an_option() -> None:
    """Labels are set and removed one by one."""
    update = ("topics", "update", "orders")
    assert pullstream(*update, "--label", "stage=test").lines == [f"{TOPIC} updated"]
    pullstream(*update, "--remove-label", "team", "--message-retention-duration", "1h")
    (topic,) = pullstream("topics", "list", "--json").objects
    assert (topic["labels"], topic["messageRetentionDuration"]) == ({"stage": "test"}, "3600s")
    pullstream(*update, "--clear-message-retention-duration")
    (topic,) = pullstream("topics", "list", "--json").objects
    assert "messageRetentionDuration" not in topic
    assert "Nothing to change" in pullstream(*update).stderr


def test_the_error_for_a_topic_id_that_is_too_short_states_the_rule_for_valid_ids() -> None:
    """The server's text names a page only."""
    assert "an id has 3 to 255 characters" in failure("topics", "create", "y")
