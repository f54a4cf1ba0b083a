"""GET /v0/dead-letters and POST /v0/dead-letters/resend."""

from __future__ import annotations

from typing import Any

import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.access import Access, Principal
from pullstream_emulator.rest.server import Rest
from pullstream_protocol.clock import ManualClock
from tests.emulator.broker import SUBSCRIPTION, TOPIC
from tests.emulator.rest_client import RestClient
from tests.emulator.wire import Wire

FAILED = "projects/test/topics/failed"
PARKED = "projects/test/subscriptions/parked"
LIST, RESEND = "/v0/dead-letters", "/v0/dead-letters/resend"


@pytest.fixture
def rest(emulator: Emulator) -> RestClient:
    """A broker whose subscription gives a message up after five failures."""
    rest = RestClient(emulator.endpoint)
    rest.ok("PUT", f"/v1/{FAILED}")
    rest.create(deadLetterPolicy={"deadLetterTopic": FAILED, "maxDeliveryAttempts": 5})
    rest.ok("PUT", f"/v1/{PARKED}", {"topic": FAILED, "enableMessageOrdering": True})
    return rest


def fail(wire: Wire, *data: str, key: str = "") -> None:
    for each in data:
        wire.publish(each, key=key)
        for _ in range(5):
            wire.modify(0, *(received.ack_id for received in wire.pull()))


def listed(rest: RestClient, query: str = "") -> list[dict[str, Any]]:
    letters: list[dict[str, Any]] = rest.ok("GET", LIST + query)["deadLetters"]
    return letters


def resend(rest: RestClient, message_id: str) -> Any:
    return rest.call("POST", RESEND, {"subscription": PARKED, "messageId": message_id})


def test_the_http_list_of_dead_letters_names_their_source_subscription_and_topic(
    rest: RestClient, wire: Wire
) -> None:
    fail(wire, "a")
    (letter,) = listed(rest)
    assert letter["subscription"] == PARKED
    assert letter["topic"] == FAILED
    assert letter["source"] == SUBSCRIPTION
    assert letter["sourceTopic"] == TOPIC
    assert letter["message"]["messageId"] == "1"
    assert letter["isLeased"] is False


def test_the_http_list_of_dead_letters_is_limited_in_length(rest: RestClient, wire: Wire) -> None:
    fail(wire, "a", "b", "c")
    content = rest.ok("GET", f"{LIST}?limit=2")
    assert len(content["deadLetters"]) == 2
    assert content["further"] == 1


def test_the_http_list_of_dead_letters_includes_dead_letter_topics_without_a_subscription(
    rest: RestClient,
) -> None:
    assert rest.ok("GET", LIST)["topicsWithoutSubscription"] == []
    rest.ok("DELETE", f"/v1/{PARKED}")
    assert rest.ok("GET", LIST)["topicsWithoutSubscription"] == [FAILED]


def test_resending_a_dead_letter_publishes_to_the_source_topic_and_acknowledges_the_letter(
    rest: RestClient, wire: Wire
) -> None:
    """Neither the copy nor the others gain a delivery attempt or another order."""
    fail(wire, "a", "b", "c")
    reply = resend(rest, "2")
    assert (reply.status, reply.content) == (200, {"messageId": "4"})
    assert [letter["message"]["messageId"] for letter in listed(rest)] == ["1", "3"]
    (again,) = wire.pull()
    assert (again.message.data, dict(again.message.attributes)) == (b"b", {})
    shown = rest.ok("GET", "/v0/subscriptions/parked/messages?project=test")["messages"]
    assert [(row["state"], row["attempts"]) for row in shown] == [("waiting", 0)] * 2
    assert resend(rest, "2").status == 404


def test_resending_a_dead_letter_that_is_leased_is_refused(
    rest: RestClient, wire: Wire, emulator: Emulator
) -> None:
    fail(wire, "a")
    pulled = rest.ok("POST", f"/v1/{PARKED}:pull", {"maxMessages": 1, "returnImmediately": True})
    assert len(pulled["receivedMessages"]) == 1
    assert listed(rest)[0]["isLeased"] is True
    assert resend(rest, "1").status == 409
    assert emulator.messages(TOPIC)[-1].data == b"a"
    assert len(emulator.messages(TOPIC)) == 1


def test_a_dead_letter_cannot_be_resent_while_an_earlier_one_of_its_ordering_key_is_leased(
    rest: RestClient, wire: Wire
) -> None:
    fail(wire, "a", "b", key="k")
    pulled = rest.ok("POST", f"/v1/{PARKED}:pull", {"maxMessages": 1, "returnImmediately": True})
    assert resend(rest, "2").status == 409
    ack_ids = [pulled["receivedMessages"][0]["ackId"]]
    rest.ok("POST", f"/v1/{PARKED}:acknowledge", {"ackIds": ack_ids})
    assert resend(rest, "2").status == 200


@pytest.mark.parametrize("exactly_once", [False, True])
def test_dead_letters_of_an_ordering_key_are_resent_in_order(
    rest: RestClient, wire: Wire, emulator: Emulator, exactly_once: bool
) -> None:
    """A later one is refused: its acknowledgement would end with the lease of the earlier one."""
    rest.ok("DELETE", f"/v1/{PARKED}")
    content = {"topic": FAILED, "enableMessageOrdering": True}
    rest.ok("PUT", f"/v1/{PARKED}", {**content, "enableExactlyOnceDelivery": exactly_once})
    fail(wire, "a", "b", key="k")
    assert resend(rest, "2").status == 409
    assert [each.data for each in emulator.messages(TOPIC)] == [b"a", b"b"]
    assert [letter["isLeased"] for letter in listed(rest)] == [False, False]
    assert [resend(rest, each).status for each in ("1", "2")] == [200, 200]
    assert listed(rest) == []
    assert [each.data for each in emulator.messages(TOPIC)] == [b"a", b"b", b"a", b"b"]


def test_resending_a_dead_letter_whose_source_topic_is_deleted_is_refused(
    rest: RestClient, wire: Wire
) -> None:
    fail(wire, "a")
    rest.ok("DELETE", f"/v1/{TOPIC}")
    # The policy still names the topic of the dead letters.
    assert listed(rest)[0]["sourceTopic"] == ""
    assert resend(rest, "1").status == 404
    assert len(listed(rest)) == 1


@pytest.mark.parametrize("body", [None, [], {"subscription": PARKED}, {"messageId": 1}, "x"])
def test_a_request_to_resend_a_dead_letter_needs_a_subscription_and_a_message_id(
    rest: RestClient, body: Any
) -> None:
    reply = rest.call("POST", RESEND, body)
    assert reply.status == 400
    assert "messageId" in reply.content["error"]["message"]


def test_a_request_to_resend_a_dead_letter_with_an_invalid_subscription_name_is_refused(
    rest: RestClient,
) -> None:
    """The error quotes the name, also half of a surrogate pair."""
    request = {"subscription": f"{PARKED}\ud800", "messageId": "1"}
    reply = rest.call("POST", RESEND, request)
    assert reply.status == 400
    assert f"(name={PARKED}?)" in reply.content["error"]["message"]


def test_the_http_list_of_dead_letters_shows_only_projects_that_the_caller_may_access(
    clock: ManualClock,
) -> None:
    access = Access({"all": Principal("root"), "other": Principal("ci", frozenset({"other"}))})
    with Emulator(clock=clock, rest=Rest(), access=access) as emulator:
        rest = RestClient(emulator.endpoint)
        own = {"Authorization": "Bearer all"}
        policy = {"deadLetterTopic": FAILED, "maxDeliveryAttempts": 5}
        assert rest.call("PUT", f"/v1/{FAILED}", {}, **own).status == 200
        assert rest.call("PUT", f"/v1/{TOPIC}", {}, **own).status == 200
        for name, content in (
            (SUBSCRIPTION, {"topic": TOPIC, "deadLetterPolicy": policy}),
            (PARKED, {"topic": FAILED}),
        ):
            assert rest.call("PUT", f"/v1/{name}", content, **own).status == 200
        published = {"messages": [{"data": "YQ=="}]}
        assert rest.call("POST", f"/v1/{FAILED}:publish", published, **own).status == 200
        assert len(rest.call("GET", LIST, **own).content["deadLetters"]) == 1
        foreign = {"Authorization": "Bearer other"}
        assert rest.call("GET", LIST, **foreign).content["deadLetters"] == []
        request = {"subscription": PARKED, "messageId": "1"}
        assert rest.call("POST", RESEND, request, **foreign).status == 404
        assert rest.call("POST", RESEND, request).status == 401
