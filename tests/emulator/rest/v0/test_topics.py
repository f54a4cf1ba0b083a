"""Topics of /v0: their settings and states as JSON."""

from __future__ import annotations

from contextlib import closing

import pytest

from pullstream_emulator import Emulator
from pullstream_protocol.clock import ManualClock
from tests.emulator.v0_client import TOPIC, V0

SETTINGS = {
    "ttl_ms": 5000,
    "cap_records": 10000,
    "cap_bytes": 0,
    "discard": "old",
    "durable": False,
    "durability": "disk",
    "auto_create": True,
    "idempotency_window_ms": 120000,
    "dedupe_node": True,
}
OTHERS = {
    "ttl_ms": 0,
    "cap_records": 0,
    "cap_bytes": 1_000_000,
    "discard": "reject",
    "durable": True,
    "durability": "fsync",
    "auto_create": True,
    "idempotency_window_ms": 0,
    "dedupe_node": False,
}


def test_omitted_v0_topic_settings_get_their_defaults(v0: V0) -> None:
    """The defaults are also set for an existing topic. Only the durability class stays."""
    v0.ok("PUT", TOPIC, OTHERS)
    config = v0.ok("PUT", TOPIC, {})["config"]
    assert config == {
        **SETTINGS, "ttl_ms": 0, "cap_records": 0, "durable": True, "durability": "fsync"
    }  # fmt: skip


def test_a_null_v0_topic_setting_is_the_same_as_an_omitted_one(v0: V0) -> None:
    """Every setting may be null."""
    assert v0.ok("PUT", TOPIC, dict.fromkeys(SETTINGS)) == v0.ok("PUT", TOPIC) | {"created": True}


def test_topics_are_listed_in_pages_by_v0(v0: V0) -> None:
    """Topics are ordered by name. Each page has the start of the next one."""
    for name in ("aaa", "bbb:1", "ccc"):
        v0.ok("PUT", f"/v0/topics/{name}")
    first = v0.ok("GET", "/v0/topics?page_size=2")
    assert [topic["topic"] for topic in first["topics"]] == ["aaa", "bbb:1"]
    rest = v0.ok("GET", f"/v0/topics?page_size=2&cursor={first['next_cursor']}")
    assert [topic["topic"] for topic in rest["topics"]] == ["ccc"]
    assert "next_cursor" not in rest
    assert rest["topics"][0] == v0.ok("GET", "/v0/topics/ccc")


@pytest.mark.parametrize(
    ("written", "name", "topic_id"),
    [
        ("notifications:web", "notifications:web", "notifications%3Aweb"),
        ("notifications%3Aweb", "notifications:web", "notifications%3Aweb"),
        ("caf%C3%A9s", "cafés", "caf%C3%A9s"),
        ("a%2Fb", "a/b", "a%2Fb"),
    ],
)
def test_a_v0_topic_name_may_have_characters_that_topic_ids_may_not_have(
    v0: V0, written: str, name: str, topic_id: str
) -> None:
    """The name is percent-encoded in the topic's ID. Answers have the plain name."""
    assert v0.ok("PUT", f"/v0/topics/{written}")["topic"] == name
    assert v0.ok("GET", "/v0/topics")["topics"][0]["topic"] == name
    listed = v0.rest.ok("GET", "/v1/projects/default/topics")["topics"]
    assert [topic["name"] for topic in listed] == [f"projects/default/topics/{topic_id}"]


def test_a_topic_id_with_a_percent_sign_created_over_v1_has_the_same_name_in_v0(v0: V0) -> None:
    """Such an ID was not created by /v0. The topic is found by the name that a list shows."""
    v0.rest.ok("PUT", "/v1/projects/default/topics/per%2541")
    v0.append(1, topic="/v0/topics/per%2541")
    assert [topic["topic"] for topic in v0.ok("GET", "/v0/topics")["topics"]] == ["per%41"]
    assert v0.ok("GET", "/v0/topics/per%2541")["topic"] == "per%41"


def test_the_project_of_a_v0_request_is_given_as_query_parameter(v0: V0) -> None:
    """Other projects do not see it. The default is the project `default`."""
    v0.ok("PUT", f"{TOPIC}?project=test")
    assert v0.refused("GET", TOPIC) == (404, "not_found")
    assert v0.ok("GET", f"{TOPIC}?project=test")["topic"] == "orders"
    assert v0.ok("GET", "/v0/topics")["topics"] == []
    assert v0.rest.ok("GET", "/v1/projects/test/topics/orders")


def test_a_broker_at_its_byte_limit_answers_a_v0_append_with_a_retry_after_header(
    clock: ManualClock,
) -> None:
    """The answer has the header Retry-After."""
    with Emulator(clock=clock, rest=True, max_bytes=150) as emulator:
        v0 = V0(emulator.endpoint)
        v0.append("x" * 80)
        with closing(v0.rest.connect()) as connection:
            connection.request(
                "POST", TOPIC, b'{"records": [{"data": "yyyyyyyyyyyyyyyyyyyyyyyy"}]}'
            )
            answer = connection.getresponse()
            assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
            assert b'"code":"throttled"' in answer.read()
        assert v0.data() == ["x" * 80]
