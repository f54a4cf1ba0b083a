"""Errors about a missing or misspelt resource name it, in one exception."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pullstream import (
    AsyncSubscriberClient,
    PublisherClient,
    SubscriberClient,
    TopicAdminClient,
)
from pullstream_emulator import Emulator
from pullstream_protocol.errors import InvalidArgument, NotFound, PermissionDenied
from tests.subscriber.streaming.fakes import TIMEOUT

TOPIC = "projects/shop/topics/orders"
SUBSCRIPTION = "projects/shop/subscriptions/billing"
MISSPELT = "projects/shop/subscriptions/biling"

Work = Callable[[str], object]


@pytest.fixture
def broker() -> Iterator[Emulator]:
    with (
        Emulator() as broker,
        TopicAdminClient(endpoint=broker.endpoint) as topics,
        SubscriberClient(endpoint=broker.endpoint) as client,
    ):
        topics.create_topic(name=TOPIC)
        client.create_subscription(name=SUBSCRIPTION, topic=TOPIC)
        yield broker


def get(endpoint: str) -> object:
    with SubscriberClient(endpoint=endpoint) as client:
        return client.get_subscription(subscription=MISSPELT)


def acknowledge(endpoint: str) -> object:
    with SubscriberClient(endpoint=endpoint) as client:
        client.acknowledge(subscription=MISSPELT, ack_ids=["x"])
    return None


def fetch(endpoint: str) -> object:
    with SubscriberClient(endpoint=endpoint) as client:
        return client.fetch(MISSPELT)


def fetch_async(endpoint: str) -> object:
    async def main() -> object:
        async with AsyncSubscriberClient(endpoint=endpoint) as client:
            return await client.fetch(MISSPELT)

    return asyncio.run(main())


def subscribe(endpoint: str) -> object:
    with SubscriberClient(endpoint=endpoint) as client:
        return client.subscribe(MISSPELT, print).result(TIMEOUT)


@pytest.mark.parametrize("work", [get, acknowledge, fetch, fetch_async, subscribe])
def test_not_found_errors_name_the_kind_and_full_name_of_the_resource_and_similar_ids(
    broker: Emulator, work: Work
) -> None:
    """The server's text has the id only, which a topic may have, too."""
    with pytest.raises(NotFound) as caught:
        work(broker.endpoint)
    assert caught.value.message == (
        "Resource not found (resource=biling). The subscription "
        "projects/shop/subscriptions/biling does not exist. Similar subscriptions: billing."
    )


@pytest.mark.parametrize("work", [get, fetch])
def test_a_not_found_error_is_one_exception_without_a_chained_grpc_error(
    broker: Emulator, work: Work
) -> None:
    """What gRPC's own error says is in the text."""
    with pytest.raises(NotFound) as caught:
        work(broker.endpoint)
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.count("Traceback (most recent call last)") == 1


def test_the_not_found_error_of_create_subscription_names_the_missing_topic(
    broker: Emulator,
) -> None:
    """The subscription itself would be new."""
    with (
        SubscriberClient(endpoint=broker.endpoint) as client,
        pytest.raises(NotFound, match="The topic projects/shop/topics/order does not exist") as e,
    ):
        client.create_subscription(name=MISSPELT, topic="projects/shop/topics/order")
    assert e.value.message.endswith("Similar topics: orders.")


def test_the_error_of_a_publish_to_a_missing_topic_names_the_topic(broker: Emulator) -> None:
    with (
        PublisherClient(endpoint=broker.endpoint) as publisher,
        pytest.raises(NotFound, match="The topic projects/shop/topics/order does not exist"),
    ):
        publisher.publish("projects/shop/topics/order", b"x").result(TIMEOUT)


def test_the_error_of_a_watch_of_a_missing_topic_names_the_topic(broker: Emulator) -> None:
    with (
        SubscriberClient(endpoint=broker.endpoint) as client,
        pytest.raises(NotFound, match="The topic projects/shop/topics/order does not exist"),
    ):
        client.watch({"projects/shop/topics/order": 0}, print).result(TIMEOUT)


def test_a_not_found_error_names_no_similar_ids_if_the_client_may_not_list_resources(
    broker: Emulator,
) -> None:
    """The error of the call itself stays."""
    with broker.faults.error("ListSubscriptions", PermissionDenied("no")):
        with pytest.raises(NotFound) as caught:
            get(broker.endpoint)
        assert caught.value.message.endswith(f"The subscription {MISSPELT} does not exist.")


def test_a_delete_that_fails_with_not_found_makes_no_list_call_for_similar_resource_ids(
    broker: Emulator,
) -> None:
    """Nobody looks for a similar resource to delete."""
    with (
        broker.faults.delay("ListSubscriptions", 0.0) as listed,
        SubscriberClient(endpoint=broker.endpoint) as client,
        pytest.raises(NotFound, match="does not exist"),
    ):
        client.delete_subscription(subscription=MISSPELT)
    assert listed.hits == 0


def create_topic(endpoint: str) -> object:
    with TopicAdminClient(endpoint=endpoint) as client:
        return client.create_topic(name="projects/shop/topics/ab")


def fetch_short(endpoint: str) -> object:
    with SubscriberClient(endpoint=endpoint) as client:
        return client.fetch("projects/shop/subscriptions/ab")


@pytest.mark.parametrize("work", [create_topic, fetch_short])
def test_the_error_for_a_resource_id_that_is_too_short_states_the_rule_for_valid_ids(
    broker: Emulator, work: Work
) -> None:
    """The rule and the server's text are in one exception."""
    with pytest.raises(InvalidArgument, match="an id has 3 to 255 characters") as caught:
        work(broker.endpoint)
    shown: Any = "".join(traceback.format_exception(caught.value))
    assert shown.count("Traceback (most recent call last)") == 1
