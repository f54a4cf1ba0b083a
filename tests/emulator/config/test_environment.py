"""Topics and subscriptions from the variables PUBSUB_PROJECT1, PUBSUB_PROJECT2 and so on."""

from __future__ import annotations

import os

import pytest

from pullstream_emulator.config import ConfigError, seeds_from_environment

ORDERS = "projects/shop/topics/orders"
BILLING = "projects/shop/subscriptions/billing"


def planted(environment: dict[str, str]) -> list[tuple[str, str]]:
    """Return the resources that the initial requests create, with their parents."""
    return [
        (seed.request.name, getattr(seed.request, "topic", ""))
        for seed in seeds_from_environment(environment).seeds
    ]


def test_variables_name_topics_and_their_subscriptions() -> None:
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


def test_a_project_without_topics_asks_for_nothing() -> None:
    """An environment without such variables creates nothing either."""
    assert planted({"PUBSUB_PROJECT1": "shop"}) == planted({}) == []


@pytest.mark.parametrize("value", ["", ",orders", "shop,", "shop,,orders"])
def test_a_variable_of_another_form_is_named(value: str) -> None:
    """The error contains the value."""
    with pytest.raises(ConfigError, match=f"PUBSUB_PROJECT3: must have the form .*: '{value}'"):
        seeds_from_environment({"PUBSUB_PROJECT3": value})
