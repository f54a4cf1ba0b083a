"""The messages and clients of a subscription over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from pullstream_emulator import Emulator
from tests.emulator.broker import TOPIC
from tests.emulator.rest_client import RestClient
from tests.emulator.v0_client import V0
from tests.emulator.wire import Wire

MESSAGES = "/v0/subscriptions/billing/messages?project=test"


def listed(rest: RestClient, query: str = "") -> tuple[list[tuple[str, str]], int]:
    """Return id and state of each message, and the number of further ones."""
    answer: Any = rest.ok("GET", MESSAGES + query)
    found = [(each["message"]["messageId"], each["state"]) for each in answer["messages"]]
    return found, answer["further"]


@pytest.mark.parametrize("ordered", [False, True])
def test_the_http_list_of_messages_of_a_subscription_is_in_publish_order(
    rest: RestClient, emulator: Emulator, wire: Wire, ordered: bool
) -> None:
    """The messages are new, leased or delayed, with and without ordering keys."""
    rest.create(
        enableMessageOrdering=ordered,
        retryPolicy={"minimumBackoff": "10s", "maximumBackoff": "10s"},
    )
    for number in range(6):
        emulator.publish(TOPIC, "a", f"key-{number % 2}" if number < 4 else "")
    leased = {each.message.message_id: each.ack_id for each in wire.pull(4)}
    assert set(leased) == {"1", "2", "3", "4"} or ordered
    wire.modify(0, leased["2"])
    found, further = listed(rest)
    assert [message_id for message_id, _ in found] == [str(number) for number in range(1, 7)]
    assert (dict(found)["2"], dict(found)["1"]) == ("delayed", "leased")
    assert further == 0
    assert listed(rest, "&limit=2") == (found[:2], 4)
    assert listed(rest, "&state=delayed&limit=1")[0] == [("2", "delayed")]


def test_an_http_search_of_messages_in_a_large_backlog_does_not_block_other_calls(
    rest: RestClient, emulator: Emulator
) -> None:
    """The messages that a filter accepts are counted beyond the limit."""
    rest.create()
    for number in range(1200):
        emulator.publish(TOPIC, "a", n=str(number % 2))
    found, further = listed(rest, "&filter=attributes.n%3D%221%22&limit=5")
    assert [message_id for message_id, _ in found] == ["2", "4", "6", "8", "10"]
    assert further == 595


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("&state=lost", "state is 'lost'; it must be one of waiting, leased"),
        ("&limit=0", "limit is '0'"),
        ("&filter=colour", "filter"),
        ("&song=1", "no parameter 'song'"),
    ],
)
def test_the_http_list_of_messages_with_an_invalid_parameter_is_refused(
    rest: RestClient, emulator: Emulator, query: str, text: str
) -> None:
    """The error names the value and the allowed form."""
    rest.create()
    assert text in V0(emulator.endpoint).message("GET", MESSAGES + query)
