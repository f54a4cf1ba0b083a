"""`pullstream topics` and `pullstream subscriptions`, for people, pipes and machines."""

from __future__ import annotations

import pytest

from pullstream_emulator import Emulator
from pullstream_protocol import names
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
    """One command creates or deletes several topics."""
    created = pullstream("topics", "create", "orders", "refunds")
    refunds = names.topic_path("test-project", "refunds")
    assert created.lines == [f"{TOPIC} created", f"{refunds} created"]
    assert [line.split("\t")[0] for line in pullstream("topics", "list").lines] == [TOPIC, refunds]
    deleted = pullstream("topics", "delete", "orders", refunds)
    assert deleted.lines == [f"{TOPIC} deleted", f"{refunds} deleted"]
    assert pullstream("topics", "list").lines == []


def test_a_topic_is_created_with_labels_and_retention() -> None:
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
def test_a_value_of_another_form_is_wrong_usage(option: tuple[str, str], text: str) -> None:
    """The error has the value and the form."""
    result = pullstream("topics", "create", "orders", *option)
    assert result.code == 2
    assert text in result.stderr


@pytest.mark.usefixtures("orders")
def test_a_subscription_is_created_with_its_settings() -> None:
    """The options have gcloud's names, and a short dead-letter topic gets the project as well."""
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
    """The list shows it."""
    pullstream(
        "subscriptions", "create", "billing", "--topic", "orders", "--push-endpoint", "http://e"
    )
    (listed,) = pullstream("subscriptions", "list", "--json").objects
    assert listed["pushConfig"]["pushEndpoint"] == "http://e"


def test_delivery_attempts_without_a_dead_letter_topic_are_wrong_usage() -> None:
    """They would have no meaning."""
    result = pullstream(
        *("subscriptions", "create", "billing", "--topic", "orders"),
        *("--max-delivery-attempts", "7"),
    )
    assert result.code == 2
    assert "--max-delivery-attempts needs --dead-letter-topic" in result.stderr


@pytest.mark.usefixtures("billing")
def test_subscriptions_are_listed_and_deleted() -> None:
    """In a pipe, columns are separated by tabs and have full names."""
    columns = pullstream("subscriptions", "list").lines[0].split("\t")
    assert columns[:3] == [SUBSCRIPTION, TOPIC, "10"]
    deleted = pullstream("subscriptions", "delete", "billing")
    assert deleted.lines == [f"{SUBSCRIPTION} deleted"]
    assert pullstream("subscriptions", "list").lines == []


@pytest.mark.usefixtures("billing")
def test_machines_get_one_object_a_line() -> None:
    """The fields have the names of the REST interface."""
    (topic,) = pullstream("topics", "list", "--json").objects
    assert (topic["name"], topic["labels"]) == (TOPIC, {"team": "a"})
    (subscription,) = pullstream("subscriptions", "list", "--json").objects
    assert subscription["ackDeadlineSeconds"] == 10
    deleted = pullstream("subscriptions", "delete", "billing", "--json").objects
    assert deleted == [{"name": SUBSCRIPTION, "deleted": True}]


@pytest.mark.usefixtures("billing")
def test_people_get_a_table_with_short_names() -> None:
    """The table has a head, and brackets in a value are no markup."""
    pullstream("topics", "create", "refunds", "--label", "team=b")
    head, first, second = pullstream("topics", "list", terminal=True).lines
    assert head.split() == ["name", "labels", "messageRetentionDuration"]
    assert first.split() == ["orders", "team=a"]
    assert second.split() == ["refunds", "team=b"]
    described = pullstream("subscriptions", "describe", "billing", terminal=True).lines
    assert ["topic", "orders"] in [line.split() for line in described]


def test_what_there_is_already_is_refused(pubsub_emulator: Emulator, orders: None) -> None:
    """Topics that were created earlier on the same line stay."""
    result = pullstream("topics", "create", "refunds", "orders", "others")
    assert result.code == 1
    assert result.stderr.startswith("Error: ALREADY_EXISTS: ")
    listed = [line.split("\t")[0] for line in pullstream("topics", "list").lines]
    assert [names.short_id(name) for name in listed] == ["orders", "refunds"]
