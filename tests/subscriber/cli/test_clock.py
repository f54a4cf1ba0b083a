"""`pullstream clock`: the clock of a running broker."""

from __future__ import annotations

import json

import pytest

from pullstream import SubscriberClient, TopicAdminClient
from tests.subscriber.command_line import pullstream

TOPIC = "projects/p/topics/orders"
SUBSCRIPTION = "projects/p/subscriptions/billing"
START = "2023-11-14T22:13:20Z"


@pytest.mark.usefixtures("emulator")
def test_the_clock_command_shows_and_advances_the_brokers_clock() -> None:
    """The command ends after all due events have happened."""
    with TopicAdminClient() as topics, SubscriberClient() as client:
        topics.create_topic(name=TOPIC)
        client.create_subscription(name=SUBSCRIPTION, topic=TOPIC, ack_deadline_seconds=10)
        topics.publish(TOPIC, [{"data": b"a"}])
        assert len(client.pull(subscription=SUBSCRIPTION, max_messages=1).received_messages) == 1
        assert pullstream("clock", "show").lines == [START]
        assert pullstream("clock", "advance", "10").lines == ["2023-11-14T22:13:30Z"]
        assert len(client.pull(subscription=SUBSCRIPTION, max_messages=1).received_messages) == 1


@pytest.mark.usefixtures("emulator")
def test_the_clock_command_refuses_to_move_the_clock_back() -> None:
    """A negative time is an error of usage."""
    assert pullstream("clock", "advance", "--", "-1").code == 2


@pytest.mark.usefixtures("emulator")
def test_the_clock_and_faults_commands_with_the_json_option_print_json_objects() -> None:
    """The objects have the time in seconds, too."""
    shown = json.loads(pullstream("clock", "show", "--json").lines[0])
    assert shown["now"] == START
    moved = json.loads(pullstream("clock", "advance", "10", "--json").lines[0])
    assert moved["seconds"] == shown["seconds"] + 10
    fault = json.loads(pullstream("faults", "add", "drop:Pull", "--json").lines[0])
    assert (fault["kind"], fault["method"]) == ("drop", "Pull")
