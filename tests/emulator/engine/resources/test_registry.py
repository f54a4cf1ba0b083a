"""Limits for the number of resources, and settings that exclude each other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pullstream_emulator.engine import Engine
from pullstream_emulator.engine.resources import registry, subscriptions
from pullstream_protocol.errors import InvalidArgument, ResourceExhausted
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION, TOPIC, update_request

PUSH = pubsub.PushConfig(push_endpoint="http://localhost:1/messages")
BIGQUERY = pubsub.BigQueryConfig(table="project.dataset.table")


def create_topic(engine: Engine, project: str, name: str) -> None:
    engine.create_topic(pubsub.Topic(name=f"projects/{project}/topics/{name}"))


def subscribe(engine: Engine, project: str, name: str) -> None:
    name = f"projects/{project}/subscriptions/{name}"
    engine.create_subscription(pubsub.Subscription(name=name, topic=TOPIC))


def take_snapshot(engine: Engine, project: str, name: str) -> None:
    name = f"projects/{project}/snapshots/{name}"
    engine.create_snapshot(pubsub.CreateSnapshotRequest(name=name, subscription=SUBSCRIPTION))


@pytest.fixture
def populated(engine: Engine) -> Engine:
    """Return an engine with a topic and a subscription in the project `test`."""
    engine.create_topic(pubsub.Topic(name=TOPIC))
    engine.create_subscription(pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC))
    return engine


@pytest.mark.parametrize(
    ("collection", "make"),
    [("topics", create_topic), ("subscriptions", subscribe), ("snapshots", take_snapshot)],
)
def test_creating_more_resources_in_a_project_than_its_maximum_is_refused(
    populated: Engine,
    monkeypatch: pytest.MonkeyPatch,
    collection: str,
    make: Callable[[Engine, str, str], None],
) -> None:
    """Resources of other projects do not count. A deletion makes room."""
    monkeypatch.setitem(registry.MAX_RESOURCES, collection, 2)
    for name in ("one", "two"):
        make(populated, "full", name)
    refusal = f'"{collection}-per-project", current=2, maximum=2'
    with pytest.raises(ResourceExhausted, match=refusal):
        make(populated, "full", "three")
    make(populated, "other", "three")
    delete = getattr(populated, f"delete_{collection[:-1]}")
    delete(f"projects/full/{collection}/one")
    make(populated, "full", "three")


def test_creating_more_subscriptions_of_a_topic_than_the_maximum_is_refused(
    populated: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Subscriptions of all projects count."""
    monkeypatch.setattr(subscriptions, "MAX_PER_TOPIC", 2)
    subscribe(populated, "other", "two")
    with pytest.raises(ResourceExhausted, match='"subscriptions-per-topic", current=2, maximum=2'):
        subscribe(populated, "third", "three")


@pytest.mark.parametrize(
    "settings", [{"push_config": PUSH}, {"bigquery_config": BIGQUERY}], ids=["push", "export"]
)
def test_a_push_or_export_subscription_cannot_have_exactly_once_delivery(
    populated: Engine, settings: dict[str, pubsub.PushConfig]
) -> None:
    """Only a consumer that pulls can get the result of its acknowledgement."""
    with pytest.raises(InvalidArgument, match="a subscription that is pushed or exported cannot"):
        populated.create_subscription(
            pubsub.Subscription(
                name=f"{SUBSCRIPTION}-2",
                topic=TOPIC,
                enable_exactly_once_delivery=True,
                **settings,  # type: ignore[arg-type]
            )
        )
    request = update_request(enable_exactly_once_delivery=True, **settings)
    before = populated.get_subscription(SUBSCRIPTION)
    with pytest.raises(InvalidArgument, match="enable_exactly_once_delivery"):
        populated.update_subscription(request)
    assert populated.get_subscription(SUBSCRIPTION) == before


def test_an_exactly_once_subscription_cannot_become_a_push_subscription(populated: Engine) -> None:
    """A user must switch it off first."""
    populated.update_subscription(update_request(enable_exactly_once_delivery=True))
    with pytest.raises(InvalidArgument, match="enable_exactly_once_delivery"):
        populated.modify_push_config(
            pubsub.ModifyPushConfigRequest(subscription=SUBSCRIPTION, push_config=PUSH)
        )
