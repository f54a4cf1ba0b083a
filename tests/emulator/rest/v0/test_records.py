"""Records of /v0: append and read."""

from __future__ import annotations

from base64 import b64encode
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.emulator.v0_client import TOPIC, V0

V1_TOPIC = "/v1/projects/default/topics/orders"


def publish(v0: V0, data: bytes, **fields: Any) -> None:
    """Publish as a client of google.pubsub.v1."""
    message = {"data": b64encode(data).decode(), **fields}
    v0.rest.ok("POST", f"{V1_TOPIC}:publish", {"messages": [message]})


# ---- appending ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "headers"), [({"idempotency_key": "k"}, {}), ({}, {"Idempotency-Key": "k"})]
)
def test_a_repeated_v0_append_with_the_same_idempotency_key_is_applied_once(
    v0: V0, fields: dict[str, str], headers: dict[str, str]
) -> None:
    """The key is in the body or in the usual header. The repetition gets the first answer."""
    content = {"records": [{"data": 1}], **fields}
    first = v0.ok("POST", TOPIC, content, **headers)
    again = v0.ok("POST", TOPIC, content, **headers)
    assert again == {**first, "created": False, "deduped": True}
    assert v0.data() == [1]


def test_a_v0_request_body_with_a_form_content_type_is_read_as_json(v0: V0) -> None:
    """By default curl sends this content type."""
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    v0.ok("POST", TOPIC, {"records": [{"data": "a=1&b=2"}]}, **form)
    assert v0.data() == ["a=1&b=2"]


# ---- content of a record -----------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)  # fmt: skip


@given(data=st.lists(JSON, min_size=1, max_size=5))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_data_of_a_v0_record_may_be_any_json_value(v0: V0, data: list[Any]) -> None:
    """The data are read as it was written."""
    appended = v0.append(*data)
    assert v0.data(from_seq=appended["first_seq"] - 1) == data


@pytest.mark.parametrize(
    "text",
    [
        "1.00",
        "1e400",
        "-0.0",
        "123456789012345678901234567890",
        '{"a":1,"a":2}',
        '"\\u0041\\ud800"',
        "9" * 5000,
        "[" * 500 + "]" * 500,
        f'"{"[" * 1000}"',
    ],
)
def test_a_v0_read_returns_record_data_as_the_appended_json_text(v0: V0, text: str) -> None:
    """The text is unchanged, even if a JSON parser would change it."""
    assert raw_append(v0, f' {{"records": [ {{"data": {text} }}]}}') == 201
    assert f'"data":{text}}}' in raw_diff(v0)
    with closing(v0.rest.connect()) as connection:
        connection.request("GET", v0.watch(limit=1))
        stream = connection.getresponse()
        lines = [stream.readline().decode() for _ in range(5)]
    assert f'"data":{text}}}' in lines[-1]


def test_whitespace_between_json_tokens_in_data_of_a_v0_record_is_removed(v0: V0) -> None:
    """Line breaks would split an event. Strings keep their space."""
    raw_append(v0, '{"records": [{"data": {\n "a b\\n" :\t[1,\r\n 2] } }]}')
    assert '"data":{"a b\\n":[1,2]}}' in raw_diff(v0)


def raw_append(v0: V0, body: str) -> int:
    with closing(v0.rest.connect()) as connection:
        connection.request("POST", TOPIC, body.encode())
        return connection.getresponse().status


def raw_diff(v0: V0) -> str:
    with closing(v0.rest.connect()) as connection:
        connection.request("POST", f"{TOPIC}/diff", b'{"limit": 1}')
        return connection.getresponse().read().decode()


@pytest.mark.parametrize("data", [b"", b"\xff", b"plain", b"NaN", b"[" * 5000])
def test_v0_returns_message_data_that_are_not_json_as_base64(v0: V0, data: bytes) -> None:
    """Another client published it."""
    v0.ok("PUT", TOPIC)
    publish(v0, data, attributes={"a": "b"})
    assert v0.data() == [{"$bytes": b64encode(data).decode()}]


def test_v0_returns_json_published_by_google_clients_as_record_data(v0: V0) -> None:
    """The attributes and ordering key are included.

    Google clients read appended records likewise.
    """
    v0.ok("PUT", TOPIC)
    subscription = "/v1/projects/default/subscriptions/billing"
    v0.rest.ok("PUT", subscription, {"topic": V1_TOPIC.removeprefix("/v1/")})
    publish(v0, b'{"n": 1}', attributes={"tag": "t", "color": "red"}, orderingKey="k")
    v0.append({"n": 2}, tag="u", node="here", key="l", meta={"color": "blue"})
    records = v0.diff(include_tags=True)["records"]
    assert [{k: v for k, v in record.items() if k != "$ts"} for record in records] == [
        {"$seq": 1, "$tag": "t", "$key": "k", "data": {"n": 1}, "meta": {"color": "red"}},
        {
            "$seq": 2, "$tag": "u", "$node": "here", "$key": "l", "data": {"n": 2},
            "meta": {"color": "blue"},
        },
    ]  # fmt: skip
    content = {"maxMessages": 10, "returnImmediately": True}
    pulled = v0.rest.ok("POST", f"{subscription}:pull", content)["receivedMessages"][1]["message"]
    assert pulled["attributes"] == {"tag": "u", "node": "here", "color": "blue"}
    assert (pulled["data"], pulled["orderingKey"]) == (b64encode(b'{"n":2}').decode(), "l")


def test_the_node_of_a_v0_append_request_applies_to_all_its_records(v0: V0) -> None:
    """A record with its own node keeps that."""
    v0.ok("POST", TOPIC, {"records": [{"data": 1}, {"data": 2, "node": "b"}], "node": "a"})
    assert [record["$node"] for record in v0.diff()["records"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({}, {"$node", "data", "meta"}),
        ({"include_tags": True}, {"$tag", "$node", "data", "meta"}),
        ({"include_meta": False}, {"$node", "data"}),
        ({"include_data": False}, {"$tag", "$node"}),
        ({"include_data": False, "include_tags": False}, {"$node"}),
    ],
)
def test_a_v0_read_request_selects_which_record_fields_its_answer_contains(
    v0: V0, wanted: dict[str, Any], names: set[str]
) -> None:
    """Number and time are always included.

    The tag is included on request, or if the data are not.
    """
    v0.append("a", tag="t", node="n", meta={"m": "1"})
    (record,) = v0.diff(**wanted)["records"]
    assert set(record) == {"$seq", "$ts", *names}
