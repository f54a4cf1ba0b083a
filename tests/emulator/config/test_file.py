"""Initial resources of a broker: configuration files, and PUBSUB_PROJECT1 and so on."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.config import ConfigError, load
from pullstream_protocol.errors import InvalidArgument
from pullstream_protocol.messages import pubsub_pb2 as pubsub

ORDERS = "projects/shop/topics/orders"
BILLING = "projects/shop/subscriptions/billing"
FILE = """
project: shop
schemas:
  - name: order
    type: AVRO
    definition: |
      {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
topics:
  - name: orders
    labels: {team: red}
    schemaSettings: {schema: order, encoding: JSON}
  - name: projects/other/topics/dead
subscriptions:
  - name: billing
    topic: orders
    ackDeadlineSeconds: 30
    enableMessageOrdering: true
    filter: attributes.country = "de"
    retryPolicy: {minimumBackoff: 1s, maximumBackoff: 1.5s}
    deadLetterPolicy: {deadLetterTopic: projects/other/topics/dead, maxDeliveryAttempts: 7}
messages:
  - {topic: orders, text: '{"id": 1}', attributes: {country: de}, orderingKey: k}
  - {topic: orders, data: eyJpZCI6IDJ9, attributes: {country: fr}}
"""


@pytest.fixture(autouse=True)
def no_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the project from the environment of the machine."""
    monkeypatch.delenv("PUBSUB_PROJECT_ID", raising=False)


def subscription(emulator: Emulator, name: str = BILLING) -> pubsub.Subscription:
    return emulator.inspect(lambda engine: engine.get_subscription(name))


def topic(emulator: Emulator, name: str = ORDERS) -> pubsub.Topic:
    return emulator.inspect(lambda engine: engine.get_topic(name))


def test_a_configuration_file_defines_the_initial_resources(tmp_path: Path) -> None:
    """Settings have the names of the API. IDs are short for names in the file's project."""
    path = tmp_path / "pubsub.yaml"
    path.write_text(FILE, encoding="utf-8")
    with Emulator(config=path) as emulator:
        made = topic(emulator)
        assert dict(made.labels) == {"team": "red"}
        assert made.schema_settings.schema == "projects/shop/schemas/order"
        billing = subscription(emulator)
        assert (billing.topic, billing.ack_deadline_seconds) == (ORDERS, 30)
        assert billing.enable_message_ordering
        assert billing.retry_policy.maximum_backoff.ToTimedelta().total_seconds() == 1.5
        assert billing.dead_letter_policy.dead_letter_topic == "projects/other/topics/dead"
        assert billing.dead_letter_policy.max_delivery_attempts == 7
        first, second = emulator.messages(ORDERS)
        assert (first.data, first.ordering_key) == (b'{"id": 1}', "k")
        assert (second.data, second.attributes["country"]) == (b'{"id": 2}', "fr")
        # The filter passes only the first message, and the schema is enforced.
        assert emulator.backlog(BILLING) == 1
        with pytest.raises(InvalidArgument):
            emulator.publish(ORDERS, '{"id": "x"}')


def test_a_configuration_file_may_be_written_in_json(tmp_path: Path) -> None:
    """The same content needs no YAML package then."""
    path = tmp_path / "pubsub.json"
    path.write_text(json.dumps({"project": "shop", "topics": [{"name": "orders"}]}))
    with Emulator(config=str(path)) as emulator:
        assert topic(emulator).name == ORDERS


def test_a_configuration_file_without_a_project_uses_the_project_environment_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The variable is the one that clients use. The file takes precedence."""
    monkeypatch.setenv("PUBSUB_PROJECT_ID", "shop")
    with Emulator(config={"topics": [{"name": "orders"}]}) as emulator:
        assert topic(emulator).name == ORDERS
    with Emulator(config={"project": "lab", "topics": [{"name": "orders"}]}) as emulator:
        assert topic(emulator, "projects/lab/topics/orders").name


def test_an_empty_configuration_file_creates_no_resources(tmp_path: Path) -> None:
    """An empty section creates nothing either."""
    path = tmp_path / "pubsub.yaml"
    path.write_text("# nothing yet\n", encoding="utf-8")
    assert load(path).seeds == load({"topics": None}).seeds == ()


def entry(section: str, **fields: Any) -> dict[str, Any]:
    return {"project": "shop", section: [fields]}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ([], r"config: must have sections such as topics, not \[\]"),
        ({"topic": []}, "config: there is no section 'topic'; there are project, schemas, topics"),
        ({"topics": {"name": "orders"}}, "config: topics: must be a list, not {'name': 'orders'}"),
        ({"topics": ["orders"]}, r"config: topics\[0\]: must have fields such as name, not 'orde"),
        ({"project": "a/b"}, "config: project: must be a project's id, not 'a/b'"),
        ({"project": 3}, "config: project: must be a project's id, not 3"),
        ({"topics": [{"name": "orders"}]}, r"topics\[0\].name: 'orders' is an id: set project"),
        (entry("topics"), r"topics\[0\].name: must be a name or an id, not ''"),
        (entry("topics", name="orders", colour="red"), r"topics\[0\].colour: .*no field.*: 'red'"),
        (entry("topics", name=7), r"topics\[0\].name: .*: 7$"),
        (
            entry("subscriptions", name="billing", topic="orders", ackDeadlineSeconds="ten"),
            r"subscriptions\[0\].ackDeadlineSeconds: .*: 'ten'",
        ),
        (
            entry("subscriptions", name="billing", topic="orders", retryPolicy={"backoff": "1s"}),
            r"subscriptions\[0\].retryPolicy: .*\"backoff\".*: {'backoff': '1s'}",
        ),
        (entry("subscriptions", name="billing"), r"subscriptions\[0\].topic: must be a name or an"),
        (entry("messages", topic="orders", data="hello"), r"messages\[0\].data: must be base64"),
        (entry("messages", topic="orders", data=3), r"messages\[0\].data: must be base64.* not 3"),
        (entry("messages", topic="orders", text=3), r"messages\[0\].text: must be text.*not 3"),
        (
            entry("messages", topic="orders", text="a", data="YWJj"),
            r"messages\[0\].text: must be text that replaces data",
        ),
        (entry("schemas", name="order", type="XML"), r"schemas\[0\].type: .*: 'XML'"),
    ],
)
def test_the_error_for_a_malformed_configuration_names_the_invalid_value_and_its_position(
    content: Any, problem: str, tmp_path: Path
) -> None:
    """The error has the position in the file and the value. No broker is created."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ConfigError, match=problem.replace("config:", r"config\.json:")):
        Emulator(config=path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            entry("subscriptions", name="billing", topic="orders"),
            r"config: subscriptions\[0\]: Resource not found \(resource=orders\)",
        ),
        (
            entry("topics", name="1"),
            r"config: topics\[0\]: Invalid resource name given \(name=projects/shop/topics/1\)",
        ),
        (
            {
                "project": "shop",
                "topics": [{"name": "orders"}],
                "messages": [{"topic": "orders", "text": "a"}, {"topic": "orders"}],
            },
            r"config: messages\[1\]: ",
        ),
    ],
)
def test_a_configuration_with_an_invalid_resource_prevents_the_start_of_the_broker(
    content: Any, problem: str
) -> None:
    """The error is the broker's own, after the position. The broker does not start."""
    emulator = Emulator(config=content)
    with pytest.raises(ConfigError, match=problem):
        emulator.start()
    emulator.stop()


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.yaml", "topics: [", "not YAML, at line 1: while parsing"),
        ("a.json", "{", "not JSON, at line 1: Expecting property name"),
        ("a.yaml", b"\xff\xfe\xfa", "not UTF-8"),
        ("missing.yaml", None, "No such file"),
    ],
)
def test_the_error_for_an_unreadable_configuration_file_names_the_file(
    name: str, text: str | bytes | None, problem: str, tmp_path: Path
) -> None:
    """The error has one line."""
    path = tmp_path / name
    if text is not None:
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ConfigError, match=problem) as raised:
        load(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_configuration_file_leaves_existing_resources_of_the_broker_unchanged() -> None:
    """A broker that restarts with its stored data has no message twice."""
    config = {
        "project": "shop",
        "topics": [{"name": "orders", "labels": {"a": "b"}}],
        "subscriptions": [{"name": "billing", "topic": "orders"}],
        "messages": [{"topic": "orders", "text": "a"}],
    }
    with Emulator(config=config) as first:
        pass
    config["topics"] = [{"name": "orders", "labels": {"a": "c"}}, {"name": "refunds"}]
    with Emulator(config=config, broker=first.broker) as second:
        assert topic(second).labels["a"] == "b"
        assert topic(second, "projects/shop/topics/refunds").name
        assert second.backlog(BILLING) == 1


def test_a_broker_reset_creates_the_resources_of_the_configuration_again() -> None:
    """Resources that were created since are removed, and those of the configuration exist again."""
    config = {
        "project": "shop",
        "topics": [{"name": "orders"}],
        "subscriptions": [{"name": "billing", "topic": "orders"}],
        "messages": [{"topic": "orders", "text": "seed"}],
    }
    with Emulator(config=config) as emulator:
        emulator.publish(ORDERS, "later")
        refunds = pubsub.Topic(name="projects/shop/topics/refunds")
        emulator.inspect(lambda engine: engine.create_topic(refunds))
        fault = emulator.faults.drop("Pull")
        emulator.reset()
        assert emulator.backlog(BILLING) == 1
        assert [message.data for message in emulator.messages("orders")] == [b"seed"]
        listing = pubsub.ListTopicsRequest(project="projects/shop")
        listed = emulator.inspect(lambda engine: engine.list_topics(listing))
        assert [each.name for each in listed.topics] == [ORDERS]
        assert fault.is_over


def test_initial_messages_in_a_configuration_file_may_have_base64_data() -> None:
    """Bytes that are not text can only be written in base64."""
    data = bytes(range(256))
    text = base64.b64encode(data).decode()
    (seed,) = load(entry("messages", topic="orders", data=text)).seeds
    assert seed.request.messages[0].data == data


def test_the_broker_profile_named_emulator_allows_an_ack_deadline_of_one_second() -> None:
    """The minimum is 1 s. The production profile refuses that."""
    config = {
        "project": "shop",
        "topics": [{"name": "orders"}],
        "subscriptions": [{"name": "billing", "topic": "orders", "ackDeadlineSeconds": 1}],
    }
    with Emulator(config=config, profile="emulator") as emulator:
        assert subscription(emulator).ack_deadline_seconds == 1
    with pytest.raises(ConfigError, match="Invalid ack deadline"):
        Emulator(config=config).start()
    with pytest.raises(ValueError, match="profile must be one of production, emulator: 'strict'"):
        Emulator(profile="strict")
