"""`pullstream topics` and `pullstream subscriptions`, as people, pipes and machines see them."""

from __future__ import annotations

import pytest

from emulator import Emulator
from protocol import names
from tests.subscriber.command_line import pullstream

pytestmark = pytest.mark.usefixtures("pubsub_emulator")

TOPIC = names.topic_path("test-project", "orders")
SUBSCRIPTION = names.subscription_path("test-project", "billing")


@pytest.fixture
def orders(pubsub_emulator: Emulator) -> None:
    assert pullstream("topics", "create", "orders", "--label", "team=a").code == 0


@pytest.fixture
def billing(orders: None) -> None:
    assert pullstream("subscriptions", "create", "billing", "--topic", "orders").code == 0


def test_topics_live_from_creation_to_deletion() -> None:
    """Several are created or deleted at once."""
    created = pullstream("topics", "create", "orders", "refunds")
    refunds = names.topic_path("test-project", "refunds")
    assert created.lines == [f"{TOPIC} created", f"{refunds} created"]
    assert [line.split("\t")[0] for line in pullstream("topics", "list").lines] == [TOPIC, refunds]
    deleted = pullstream("topics", "delete", "orders", refunds)
    assert deleted.lines == [f"{TOPIC} deleted", f"{refunds} deleted"]
    assert pullstream("topics", "list").lines == []


def test_a_topic_is_created_with_labels_and_retention() -> None:
    """They show in its description, one path and value a line."""
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
        (("--label", "a"), "'a' is not of the form KEY=VALUE"),
        (("--message-retention-duration", "soon"), "'soon' is not a duration such as 90s"),
    ],
)
def test_a_value_of_another_form_is_wrong_usage(option: tuple[str, str], text: str) -> None:
    """The message names the value and the form."""
    result = pullstream("topics", "create", "orders", *option)
    assert result.code == 2
    assert text in result.stderr


@pytest.mark.usefixtures("orders")
def test_a_subscription_is_created_with_its_settings() -> None:
    """The options have gcloud's names; a short dead letter topic is completed, too."""
    pullstream("topics", "create", "dead")
    created = pullstream(
        *("subscriptions", "create", "billing", "--topic", "orders", "--ack-deadline", "30"),
        *("--enable-message-ordering", "--enable-exactly-once-delivery"),
        *("--message-filter", 'attributes.type = "paid"', "--retain-acked-messages"),
        *("--dead-letter-topic", "dead", "--max-delivery-attempts", "7"),
        *("--message-retention-duration", "1d", "--label", "team=b"),
    )
    assert created.lines == [f"{SUBSCRIPTION} created"]
    (described,) = pullstream("subscriptions", "describe", "billing", "--json").objects
    expected = {
        "name": SUBSCRIPTION,
        "topic": TOPIC,
        "ackDeadlineSeconds": 30,
        "enableMessageOrdering": True,
        "enableExactlyOnceDelivery": True,
        "filter": 'attributes.type = "paid"',
        "retainAckedMessages": True,
        "deadLetterPolicy": {
            "deadLetterTopic": names.topic_path("test-project", "dead"),
            "maxDeliveryAttempts": 7,
        },
        "messageRetentionDuration": "86400s",
        "labels": {"team": "b"},
    }
    assert {key: described.get(key) for key in expected} == expected


@pytest.mark.usefixtures("orders")
def test_a_push_subscription_has_its_endpoint() -> None:
    """It shows in the list."""
    pullstream(
        "subscriptions", "create", "billing", "--topic", "orders", "--push-endpoint", "http://e"
    )
    (listed,) = pullstream("subscriptions", "list", "--json").objects
    assert listed["pushConfig"]["pushEndpoint"] == "http://e"


def test_delivery_attempts_without_a_dead_letter_topic_are_wrong_usage() -> None:
    """They would mean nothing."""
    result = pullstream(
        *("subscriptions", "create", "billing", "--topic", "orders"),
        *("--max-delivery-attempts", "7"),
    )
    assert result.code == 2
    assert "--max-delivery-attempts needs --dead-letter-topic" in result.stderr


@pytest.mark.usefixtures("billing")
def test_subscriptions_are_listed_and_deleted() -> None:
    """In a pipe a line has tabs between its columns and full names in them."""
    columns = pullstream("subscriptions", "list").lines[0].split("\t")
    assert columns[:3] == [SUBSCRIPTION, TOPIC, "10"]
    deleted = pullstream("subscriptions", "delete", "billing")
    assert deleted.lines == [f"{SUBSCRIPTION} deleted"]
    assert pullstream("subscriptions", "list").lines == []


@pytest.mark.usefixtures("billing")
def test_machines_get_one_object_a_line() -> None:
    """With the names that the REST interface has."""
    (topic,) = pullstream("topics", "list", "--json").objects
    assert (topic["name"], topic["labels"]) == (TOPIC, {"team": "a"})
    (subscription,) = pullstream("subscriptions", "list", "--json").objects
    assert subscription["ackDeadlineSeconds"] == 10
    deleted = pullstream("subscriptions", "delete", "billing", "--json").objects
    assert deleted == [{"name": SUBSCRIPTION, "deleted": True}]


@pytest.mark.usefixtures("billing")
def test_people_get_a_table_with_short_names() -> None:
    """It has a head, and brackets in a value are no markup."""
    pullstream("topics", "create", "refunds", "--label", "team=b")
    head, first, second = pullstream("topics", "list", terminal=True).lines
    assert head.split() == ["name", "labels", "messageRetentionDuration"]
    assert first.split() == ["orders", "team=a"]
    assert second.split() == ["refunds", "team=b"]
    described = pullstream("subscriptions", "describe", "billing", terminal=True).lines
    assert ["topic", "orders"] in [line.split() for line in described]


def test_what_there_is_already_is_refused(pubsub_emulator: Emulator, orders: None) -> None:
    """What was created before it on the same line stays."""
    result = pullstream("topics", "create", "refunds", "orders", "others")
    assert result.code == 1
    assert result.stderr.startswith("Error: ALREADY_EXISTS: ")
    listed = [line.split("\t")[0] for line in pullstream("topics", "list").lines]
    assert [names.short_id(name) for name in listed] == ["orders", "refunds"]
