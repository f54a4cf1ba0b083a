"""Topics and subscriptions from the variables PUBSUB_PROJECT1, PUBSUB_PROJECT2 and so on."""

from __future__ import annotations

import os

import pytest

from pullstream_emulator.config import ConfigError, seeds_from_environment
from pullstream_protocol import names

ORDERS = "projects/shop/topics/orders"
BILLING = "projects/shop/subscriptions/billing"


def planted(environment: dict[str, str]) -> list[tuple[str, str]]:
    """Return the resources that the initial requests create, with their parents."""
    return [
        (seed.request.name, getattr(seed.request, "topic", ""))
        for seed in seeds_from_environment(environment).seeds
    ]


def test_project_environment_variables_create_topics_and_their_subscriptions() -> None:
    """The syntax is that of images around Google's emulator.

    Topics are created before subscriptions.
    """
    environment = {
        "PUBSUB_PROJECT2": "lab,plain",
        "PUBSUB_PROJECT1": "shop,orders:billing:audit,refunds",
        "PUBSUB_PROJECT_ID": "unrelated",
        "PATH": os.defpath,
    }
    assert planted(environment) == [
        (ORDERS, ""),
        ("projects/shop/topics/refunds", ""),
        ("projects/lab/topics/plain", ""),
        (BILLING, ORDERS),
        ("projects/shop/subscriptions/audit", ORDERS),
    ]


def test_a_project_environment_variable_without_topics_creates_no_resources() -> None:
    """An environment without such variables creates nothing either."""
    assert planted({"PUBSUB_PROJECT1": "shop"}) == planted({}) == []


@pytest.mark.parametrize("value", ["", ",orders", "shop,", "shop,,orders"])
def test_the_error_for_a_malformed_project_environment_variable_names_the_variable(
    value: str,
) -> None:
    """The error contains the value."""
    with pytest.raises(ConfigError, match=f"PUBSUB_PROJECT3: must have the form .*: '{value}'"):
        seeds_from_environment({"PUBSUB_PROJECT3": value})


def subscriptions_of(value: str) -> dict[str, tuple[bool, int, str]]:
    """Return ordering, ack deadline and push endpoint by the id of a subscription."""
    seeds = seeds_from_environment({"PUBSUB_PROJECT1": value}).seeds
    return {
        names.short_id(seed.request.name): (
            seed.request.enable_message_ordering,
            seed.request.ack_deadline_seconds,
            seed.request.push_config.push_endpoint,
        )
        for seed in seeds
        if seed.method == "CreateSubscription"
    }


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        # The forms of images for Google's emulator.
        ("myapp/endpoint", "http://myapp/endpoint"),
        ("localhost#8030", "http://localhost:8030"),
        # Whole URLs.
        ("http://app:8080/push", "http://app:8080/push"),
        ("https://app", "https://app"),
        ("app:8080", "http://app:8080"),
    ],
)
def test_a_project_environment_variable_may_define_a_push_subscription(
    endpoint: str, url: str
) -> None:
    """The other subscriptions of the topic are found, too."""
    assert subscriptions_of(f"shop,orders:billing:pushed+{endpoint}:audit") == {
        "billing": (False, 0, ""),
        "pushed": (False, 0, url),
        "audit": (False, 0, ""),
    }


def test_a_project_environment_variable_may_set_message_ordering_and_the_ack_deadline() -> None:
    """In every combination."""
    assert subscriptions_of("shop,orders:aaa/ordered:bbb~300:ccc~60/ordered+app/push") == {
        "aaa": (True, 0, ""),
        "bbb": (False, 300, ""),
        "ccc": (True, 60, "http://app/push"),
    }


@pytest.mark.parametrize("text", ["billing/order", "billing+", "billing/ordered~60", "+app", ""])
def test_the_error_for_a_project_environment_variable_names_the_malformed_subscription(
    text: str,
) -> None:
    """The error has the allowed form."""
    with pytest.raises(ConfigError, match=r"PUBSUB_PROJECT1: .*ID\[~SECONDS\]\[/ordered\]"):
        subscriptions_of(f"shop,orders:{text}")
