"""`pullstream subscriptions`."""

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
