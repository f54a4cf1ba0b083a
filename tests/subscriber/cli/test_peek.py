"""`pullstream peek`: a look at the messages of a subscription."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pullstream import SubscriberClient
from pullstream.topics import TopicAdminClient
from pullstream_emulator import Emulator
from pullstream_protocol import names
from tests.subscriber.command_line import pullstream

TOPIC = names.topic_path("test-project", "orders")
SUBSCRIPTION = names.subscription_path("test-project", "billing")


def create(emulator: Emulator, **settings: Any) -> None:
    with SubscriberClient(endpoint=emulator.endpoint) as client:
        with TopicAdminClient(endpoint=emulator.endpoint) as topics:
            topics.create_topic(name=TOPIC)
        client.create_subscription(name=SUBSCRIPTION, topic=TOPIC, **settings)


@pytest.fixture
def broker(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """Return a broker with HTTP, and a subscription with a dead-letter policy."""
    monkeypatch.setenv("PUBSUB_PROJECT_ID", "test-project")
    policy = {"dead_letter_topic": TOPIC, "max_delivery_attempts": 5}
    create(emulator, dead_letter_policy=policy, enable_message_ordering=True)
    return emulator


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """Yield a server without the requests of a pullstream broker."""
    monkeypatch.setenv("PUBSUB_PROJECT_ID", "test-project")
    with Emulator(rest=False) as emulator:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", emulator.endpoint)
        yield emulator


def test_the_peek_command_leases_no_message_and_adds_no_delivery_attempt(broker: Emulator) -> None:
    """No message is leased, and no delivery is counted, however often the command runs."""
    broker.publish(TOPIC, "one", ordering_key="k", origin="web")
    broker.publish(TOPIC, "two", ordering_key="k")
    for _ in range(7):
        result = pullstream("peek", "billing")
        assert (result.code, result.stdout) == (0, b"one\ntwo\n")
        assert result.stderr == "2 messages\n"
    assert not broker.history.deliveries("billing")
    with SubscriberClient(endpoint=broker.endpoint) as client:
        (received,) = client.fetch(SUBSCRIPTION)
    assert (received.data, received.delivery_attempt) == (b"one", 1)


def test_the_peek_command_prints_leased_messages_and_marks_them_as_leased(broker: Emulator) -> None:
    """An acknowledged message that waits for an earlier one of its key is not shown."""
    for number in range(3):
        broker.publish(TOPIC, f"{number}", ordering_key="k")
    with SubscriberClient(endpoint=broker.endpoint) as client:
        pulled = client.pull(subscription=SUBSCRIPTION, max_messages=2).received_messages
        client.acknowledge(subscription=SUBSCRIPTION, ack_ids=[pulled[1].ack_id])
    first, second = pullstream("peek", "billing", "--json").objects
    assert (first["data"], first["state"], first["deliveryAttempt"]) == ("0", "leased", 1)
    assert (second["data"], second["state"]) == ("2", "waiting")
    assert "deliveryAttempt" not in second
    assert "ackId" not in first
    people = pullstream("peek", "billing", terminal=True)
    assert "state=leased" in people.lines[0]


def test_the_peek_command_prints_long_data_in_full(broker: Emulator) -> None:
    """The broker's list has only the beginning. Data that is not text is base64."""
    broker.publish(TOPIC, b"\xff" * 100_000)
    broker.publish(TOPIC, "ä" * 10_000)
    lines = (b"\xff" * 100_000, ("ä" * 10_000).encode(), b"")
    assert pullstream("peek", "billing").stdout == b"\n".join(lines)
    first, second = pullstream("peek", "billing", "--json").objects
    assert first["base64"] is True
    assert second["data"] == "ä" * 10_000


def test_the_peek_command_prints_how_many_messages_of_the_backlog_it_does_not_show(
    broker: Emulator,
) -> None:
    """The oldest messages are printed."""
    for number in range(5):
        broker.publish(TOPIC, f"{number}")
    result = pullstream("peek", "billing", "--max-messages", "2")
    assert (result.stdout, result.stderr) == (b"0\n1\n", "2 messages (3 more)\n")


def test_the_peek_command_succeeds_for_a_subscription_without_messages(broker: Emulator) -> None:
    """A note says so."""
    result = pullstream("peek", "billing")
    assert (result.code, result.stdout, result.stderr) == (0, b"", "no messages\n")


def test_the_peek_command_fails_for_a_missing_subscription(broker: Emulator) -> None:
    """The error is one line."""
    result = pullstream("peek", "nothing")
    assert (result.code, result.stderr.count("\n")) == (1, 1)
    assert "nothing" in result.stderr


def test_the_peek_command_pulls_and_nacks_messages_of_servers_without_a_peek_call(
    elsewhere: Emulator,
) -> None:
    """The command says that the delivery counts."""
    create(elsewhere)
    elsewhere.publish(TOPIC, "one")
    for _ in range(2):
        result = pullstream("peek", "billing")
        assert (result.code, result.stdout) == (0, b"one\n")
        assert "the look counts as a delivery attempt" in result.stderr
    assert pullstream("fetch", "billing", "--ack", "--no-wait").stdout == b"one\n"


def test_the_peek_command_requires_the_yes_option_if_a_delivery_can_dead_letter_a_message(
    elsewhere: Emulator,
) -> None:
    """The error has the limit and the topic. Nothing is delivered before."""
    policy = {"dead_letter_topic": TOPIC, "max_delivery_attempts": 5}
    create(elsewhere, dead_letter_policy=policy)
    elsewhere.publish(TOPIC, "one")
    result = pullstream("peek", "billing")
    assert (result.code, result.stdout) == (1, b"")
    assert f"after 5 attempts a message goes to {TOPIC}. Pass --yes" in result.stderr
    assert not elsewhere.history.deliveries("billing")
    assert pullstream("peek", "billing", "--yes").stdout == b"one\n"


@pytest.mark.parametrize("options", [[], ["--yes"]])
def test_the_peek_command_refuses_an_ordered_exactly_once_subscription_of_another_server(
    elsewhere: Emulator, options: list[str]
) -> None:
    """A returned message withdraws the leases of the later messages of its key."""
    create(elsewhere, enable_message_ordering=True, enable_exactly_once_delivery=True)
    elsewhere.publish(TOPIC, "one")
    result = pullstream("peek", "billing", *options)
    assert (result.code, result.stdout) == (1, b"")
    assert "has ordering and exactly-once delivery" in result.stderr
    assert not elsewhere.history.deliveries("billing")


def test_the_publish_command_accepts_the_json_output_of_the_peek_command(
    broker: Emulator, tmp_path: Path
) -> None:
    """The copies have data, attributes and ordering key, but no attributes of a server."""
    broker.publish(TOPIC, b"\xff\x00", ordering_key="k", origin="web")
    file = tmp_path / "messages.json"
    file.write_bytes(pullstream("peek", "billing", "--json").stdout)
    assert pullstream("publish", "orders", "--from", str(file)).code == 0
    first, second = broker.messages(TOPIC)
    assert (second.data, second.ordering_key) == (first.data, first.ordering_key)
    assert dict(second.attributes) == {"origin": "web"}
