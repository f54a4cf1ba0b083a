"""`pullstream subscriptions`."""

from __future__ import annotations

import pytest

from pullstream_emulator import Emulator
from pullstream_protocol import names
from pullstream_protocol.clock import ManualClock
from tests.subscriber.command_line import pullstream, usage_error

TOPIC = names.topic_path("test-project", "orders")
SUBSCRIPTION = names.subscription_path("test-project", "billing")


@pytest.fixture
def orders(broker: Emulator) -> None:
    assert pullstream("topics", "create", "orders", "--label", "team=a").code == 0


@pytest.fixture
def billing(orders: None) -> None:
    assert pullstream("subscriptions", "create", "billing", "--topic", "orders").code == 0


@pytest.mark.usefixtures("orders")
def test_the_subscriptions_create_command_sets_every_setting_given_by_an_option() -> None:
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
def test_the_subscriptions_create_command_can_create_a_push_subscription() -> None:
    """The list shows it."""
    pullstream(
        "subscriptions", "create", "billing", "--topic", "orders", "--push-endpoint", "http://e"
    )
    (listed,) = pullstream("subscriptions", "list", "--json").objects
    assert listed["pushConfig"]["pushEndpoint"] == "http://e"


def test_the_max_delivery_attempts_option_without_dead_letter_topic_is_a_usage_error() -> None:
    """The option would have no meaning."""
    error = usage_error(
        *("subscriptions", "create", "billing", "--topic", "orders"),
        *("--max-delivery-attempts", "7"),
    )
    assert "--max-delivery-attempts needs --dead-letter-topic" in error


@pytest.mark.usefixtures("billing")
def test_the_subscriptions_command_lists_and_deletes_subscriptions() -> None:
    """In a pipe, columns are separated by tabs and have full names."""
    columns = pullstream("subscriptions", "list").lines[0].split("\t")
    assert columns[:3] == [SUBSCRIPTION, TOPIC, "10"]
    deleted = pullstream("subscriptions", "delete", "billing")
    assert deleted.lines == [f"{SUBSCRIPTION} deleted"]
    assert pullstream("subscriptions", "list").lines == []


@pytest.mark.usefixtures("billing")
def test_the_subscriptions_list_command_with_json_prints_one_object_per_line() -> None:
    """The fields have the names of the REST interface."""
    (topic,) = pullstream("topics", "list", "--json").objects
    assert (topic["name"], topic["labels"]) == (TOPIC, {"team": "a"})
    (subscription,) = pullstream("subscriptions", "list", "--json").objects
    assert subscription["ackDeadlineSeconds"] == 10
    deleted = pullstream("subscriptions", "delete", "billing", "--json").objects
    assert deleted == [{"name": SUBSCRIPTION, "deleted": True}]


@pytest.mark.usefixtures("billing")
def test_the_subscriptions_list_command_prints_short_resource_names_to_a_terminal() -> None:
    """The table has a head, and no column that is empty in every row."""
    pullstream("topics", "create", "refunds", "--label", "team=b")
    head, first, second = pullstream("topics", "list", terminal=True).lines
    assert head.split() == ["name", "labels"]
    assert first.split() == ["orders", "team=a"]
    assert second.split() == ["refunds", "team=b"]
    described = pullstream("subscriptions", "describe", "billing", terminal=True).lines
    assert ["topic", "orders"] in [line.split() for line in described]


def shown() -> dict[str, object]:
    (subscription,) = pullstream("subscriptions", "describe", "billing", "--json").objects
    return subscription


@pytest.mark.usefixtures("billing")
def test_the_subscriptions_update_command_changes_only_settings_given_by_an_option() -> None:
    """A policy is set as a whole, and another option clears it."""
    pullstream("topics", "create", "dead")
    update = ("subscriptions", "update", "billing")
    assert pullstream(*update, "--ack-deadline", "30").lines == [f"{SUBSCRIPTION} updated"]
    pullstream(*update, "--dead-letter-topic", "dead", "--label", "a=1", "--retain-acked-messages")
    pullstream(*update, "--max-delivery-attempts", "7")
    changed = shown()
    assert changed["ackDeadlineSeconds"] == 30
    assert changed["retainAckedMessages"] is True
    assert changed["labels"] == {"a": "1"}
    assert changed["deadLetterPolicy"] == {
        "deadLetterTopic": names.topic_path("test-project", "dead"),
        "maxDeliveryAttempts": 7,
    }
    pullstream(*update, "--clear-dead-letter-policy", "--no-retain-acked-messages")
    pullstream(*update, "--remove-label", "a", "--push-endpoint", "http://localhost:1/push")
    changed = shown()
    assert not changed.keys() & {"deadLetterPolicy", "labels", "retainAckedMessages"}
    assert changed["pushConfig"] == {"pushEndpoint": "http://localhost:1/push"}
    pullstream(*update, "--push-endpoint", "")
    assert not shown()["pushConfig"]


@pytest.mark.usefixtures("billing")
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ((), "Nothing to change"),
        (("--max-delivery-attempts", "7"), "--max-delivery-attempts needs --dead-letter-topic"),
        (("--dead-letter-topic", "orders", "--clear-dead-letter-policy"), "set and cleared"),
    ],
)
def test_an_invalid_subscriptions_update_command_is_a_usage_error_and_changes_no_setting(
    options: tuple[str, ...], text: str
) -> None:
    """Nothing is changed."""
    assert text in usage_error("subscriptions", "update", "billing", *options)


@pytest.mark.usefixtures("billing")
def test_a_subscription_detached_by_a_command_receives_no_new_messages() -> None:
    """The settings of the subscription show that it is detached."""
    assert pullstream("subscriptions", "detach", "billing").lines == [f"{SUBSCRIPTION} detached"]
    assert shown()["detached"] is True


def test_the_subscriptions_describe_command_shows_backlog_size_and_oldest_message_age(
    emulator: Emulator, clock: ManualClock
) -> None:
    """The two come before the settings. A server without HTTP does not report them."""
    project = ("--project", "test-project")
    pullstream("topics", "create", "orders", *project)
    pullstream("subscriptions", "create", "billing", "--topic", "orders", *project)
    pullstream("publish", "orders", "a", "b", *project)
    clock.advance(90)
    listed = pullstream("subscriptions", "list", *project)
    assert listed.lines[0].split("\t")[:5] == [SUBSCRIPTION, "2", "90", "0", TOPIC]
    described = pullstream("subscriptions", "describe", "billing", "--json", *project).objects[0]
    assert list(described)[:4] == ["name", "backlog", "oldestUnackedSeconds", "leased"]
    head, row = pullstream("subscriptions", "list", *project, terminal=True).lines[:2]
    assert head.split() == ["name", "backlog", "oldest", "s", "leased", "topic", "deadline", "s"]
    assert row.split()[:4] == ["billing", "2", "90", "0"]
