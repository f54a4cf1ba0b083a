"""Bad requests to /v0: each field is refused by name, without any effect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from pullstream_emulator import Emulator
from tests.emulator.v0_client import TOPIC, V0

ROUTER = "/v0/routers/copies"
WATCH = "/v0/watch"


def nested(depth: int) -> Any:
    """Return arrays within arrays."""
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with Emulator(rest=True) as emulator:
        yield emulator


@pytest.fixture
def v0(emulator: Emulator) -> V0:
    """Return a client of an empty broker.

    All tests share the broker, because none of them may change it.
    """
    emulator.reset()
    return V0(emulator.endpoint)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "The body: Expected `object`, got `array`"),
        ({"ttl": 1}, "Object contains unknown field `ttl`"),
        ({"ttl_ms": -1}, "ttl_ms: Expected `int` >= 0"),
        ({"ttl_ms": 10**15}, "ttl_ms: Expected `int` <= 31622400000"),
        ({"ttl_ms": 1.5}, "ttl_ms: Expected `int | null`, got `float`"),
        ({"ttl_ms": "5s"}, "ttl_ms: Expected `int | null`, got `str`"),
        ({"cap_records": True}, "cap_records: Expected `int | null`, got `bool`"),
        ({"cap_records": 2**63}, "cap_records: Expected `int` <= 9223372036854775807"),
        ({"cap_bytes": [1]}, "cap_bytes: Expected `int | null`, got `array`"),
        ({"discard": "new"}, "discard: Expected one of old, reject"),
        ({"discard": ["old"]}, "discard: Expected `str | null`, got `array`"),
        ({"durable": "no"}, "durable: Expected `bool | null`, got `str`"),
        ({"durability": "ephemeral"}, "durability: Expected one of memory, disk, fsync"),
        ({"auto_create": False}, "auto_create must be true"),
        ({"idempotency_window_ms": 10**9}, "idempotency_window_ms: Expected `int` <= 86400000"),
        ({"dedupe_node": 0}, "dedupe_node: Expected `bool | null`, got `int`"),
    ],
)
def test_invalid_v0_topic_settings_are_refused(v0: V0, content: Any, message: str) -> None:
    assert message in v0.message("PUT", TOPIC, content)
    assert v0.ok("GET", "/v0/topics")["topics"] == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "The body: Object missing required field `records`"),
        ({"records": {"data": 1}}, "records: Expected `array`, got `object`"),
        ({"records": []}, "records: Expected `array` of length >= 1"),
        ({"records": [1]}, "records[0]: Expected `object`, got `int`"),
        ({"records": [{"data": 1}, {}]}, "records[1]: Object missing required field `data`"),
        ({"records": [{"data": 1, "dat": 1}]}, "records[0]: Object contains unknown field `dat`"),
        ({"records": [{"data": 1, "tag": 5}]}, "records[0].tag: Expected `str | null`, got `int`"),
        ({"records": [{"data": 1, "tag": "x" * 257}]}, "tag_size"),
        ({"records": [{"data": 1, "tag": "\ud800"}]}, "The body: Expected text in Unicode"),
        ({"records": [{"data": 1, "node": []}]}, "records[0].node: Expected `str | null`"),
        ({"records": [{"data": 1, "node": "x" * 129}]}, "node_size"),
        ({"records": [{"data": 1, "key": {}}]}, "records[0].key: Expected `str | null`"),
        ({"records": [{"data": 1, "meta": []}]}, "records[0].meta: Expected `object | null`"),
        ({"records": [{"data": 1, "meta": {"a": 1}}]}, "records[0].meta[...]: Expected `str`"),
        ({"records": [{"data": 1, "meta": {"a" * 1000: 1}}]}, "[0].meta[...]: Expected `str`"),
        ({"records": [{"data": 1, "meta": {"\udfff": ""}}]}, "The body: Expected text in Unicode"),
        ({"records": [{"data": 1, "meta": {"tag": "x"}}]}, "records[0].meta must not have tag"),
        ({"records": [{"data": 1, "meta": {"": "x"}}]}, "attribute key"),
        (
            {"records": [{"data": 1, "meta": {f"a{n}": "" for n in range(101)}}]},
            "`object` of length <= 100",
        ),
        ({"records": [{"data": "x" * 2**20}]}, "value for data_size is too large"),
        ({"records": [{"data": nested(501)}]}, "data must not be nested deeper than 500"),
        ({"records": [{"data": {"a": [nested(499)]}}]}, "not be nested deeper than 500"),
        ({"records": [{"data": 1}] * 10_001}, "records: Expected `array` of length <= 10000"),
        ({"records": [{"data": 1}], "node": 1}, "node: Expected `str | null`, got `int`"),
        (
            {"records": [{"data": 1}], "idempotency_key": 1},
            "idempotency_key: Expected `str | null`",
        ),
        ({"records": [{"data": 1}], "idempotency_key": "x" * 257}, "idempotency_key_size"),
        ({"records": [{"data": 1}], "create": "no"}, "create: Expected `bool | null`, got `str`"),
    ],
)
def test_v0_appends_of_invalid_records_are_refused(v0: V0, content: Any, message: str) -> None:
    v0.ok("PUT", TOPIC)
    assert message in v0.message("POST", TOPIC, content)
    assert v0.ok("GET", TOPIC)["head_seq"] == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"from_seq": -1}, "from_seq: Expected `int` >= 0"),
        ({"from_seq": "1"}, "from_seq: Expected `int | null`, got `str`"),
        ({"from_seq": 2**63}, "from_seq: Expected `int` <= 9223372036854775807"),
        ({"tail": 1}, "tail: Expected `bool | null`, got `int`"),
        ({"epoch": 5}, "epoch: Expected `str | null`, got `int`"),
        ({"epoch": "x"}, "epoch must be the text of a topic's epoch"),
        ({"filter": "x"}, 'filter must be ["tag", "Eq", TEXT]'),
        ({"filter": ["node", "Eq", "x"]}, "filter must be"),
        ({"filter": ["tag", "Like", "x"]}, "filter must be"),
        ({"filter": ["tag", "Glob", "x"]}, "filter must be"),
        ({"filter": ["tag", "Glob", "*x*"]}, "filter must be"),
        ({"filter": ["tag", "Eq", 1]}, "filter must be"),
        ({"filter": ["tag", "Eq", "\ud800"]}, "The body: Expected text in Unicode"),
        ({"filter": ["tag", "Eq", "x" * 300]}, "filter"),
        ({"limit": -1}, "limit: Expected `int` >= 0"),
        ({"max_batch_bytes": "8"}, "max_batch_bytes: Expected `int | null`, got `str`"),
        ({"wait_ms": -1}, "wait_ms: Expected `int` >= 0"),
        ({"wait_ms": None, "node": ["a"]}, "node: Expected `str | null`, got `array`"),
        ({"include_data": 1}, "include_data: Expected `bool | null`, got `int`"),
        ({"include_tags": 1}, "include_tags: Expected `bool | null`, got `int`"),
        ({"include_meta": 1}, "include_meta: Expected `bool | null`, got `int`"),
        ({"cursor": 1}, "Object contains unknown field `cursor`"),
    ],
)
def test_v0_read_requests_with_invalid_parameters_are_refused(
    v0: V0, content: Any, message: str
) -> None:
    v0.append(1)
    assert message in v0.message("POST", f"{TOPIC}/diff", content)


@pytest.mark.parametrize("content", [{"limit": 10**12}, {"max_batch_bytes": 2**62}, {"limit": 0}])
def test_v0_read_limits_above_the_maximum_are_lowered(v0: V0, content: Any) -> None:
    """A limit is a maximum, so a lower one is no error."""
    v0.append(1)
    assert v0.data(**content) == [1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "before_seq or match is missing"),
        ({"before_seq": 0}, "before_seq or match is missing"),
        ({"before_seq": -1}, "before_seq: Expected `int` >= 0"),
        ({"match": "x"}, 'match must be ["tag", "Eq", TEXT]'),
        ({"filter": ["tag", "Eq", "x"]}, "Object contains unknown field `filter`"),
    ],
)
def test_v0_delete_requests_with_invalid_parameters_are_refused(
    v0: V0, content: Any, message: str
) -> None:
    v0.append(1)
    assert message in v0.message("POST", f"{TOPIC}/delete", content)
    assert v0.data() == [1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"dest": "others"}, "The body: Object missing required field `source`"),
        ({"source": "orders"}, "The body: Object missing required field `dest`"),
        ({"source": 1, "dest": "others"}, "source: Expected `str`, got `int`"),
        ({"source": "orders", "dest": None}, "dest: Expected `str`, got `null`"),
        ({"source": "orders", "dest": "orders"}, "must differ"),
        ({"source": "orders", "dest": "x"}, '"x" cannot name a topic'),
        ({"source": "orders", "dest": "others", "filter": "x"}, "filter must be"),
        (
            {"source": "orders", "dest": "others", "preserve_node": 1},
            "preserve_node: Expected `bool | null`",
        ),
        (
            {"source": "orders", "dest": "others", "preserve_tag": 1},
            "preserve_tag: Expected `bool | null`",
        ),
        (
            {"source": "orders", "dest": "others", "create_dest": 1},
            "create_dest: Expected `bool | null`",
        ),
        (
            {"source": "orders", "dest": "others", "allow_cycle": 1},
            "allow_cycle: Expected `bool | null`",
        ),
        ({"source": "orders", "dest": "others", "to": 1}, "Object contains unknown field `to`"),
    ],
)
def test_v0_routers_with_invalid_settings_are_refused(v0: V0, content: Any, message: str) -> None:
    v0.ok("PUT", TOPIC)
    assert message in v0.message("PUT", ROUTER, content)
    assert v0.ok("GET", "/v0/routers")["routers"] == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "The body: Object missing required field `topics`"),
        ({"topics": {}}, "topics"),
        ({"topics": ["orders"]}, "topics: Expected `object`, got `array`"),
        ({"topics": {"orders": 1}}, "topics[orders]: Expected `object`, got `int`"),
        (
            {"topics": {"orders": {"from": 1}}},
            "topics[orders]: Object contains unknown field `from`",
        ),
        ({"topics": {"orders": {"from_seq": -1}}}, "topics[orders].from_seq: Expected `int` >= 0"),
        ({"topics": {"orders": {"tail": "yes"}}}, "topics[orders].tail: Expected `bool | null`"),
        ({"topics": {"orders": {"epoch": -1}}}, "topics[orders].epoch: Expected `str | null`"),
        ({"topics": {"orders": {"filter": 1}}}, "topics[orders].filter must be"),
        ({"topics": {"\ud800": {}}}, "The body: Expected text in Unicode"),
        ({"topics": {"orders:eu": {}, "orders%3Aeu": {}}}, "topics contains orders%3Aeu twice"),
        (
            {"topics": {f"orders{n}": {} for n in range(257)}},
            "topics: Expected `object` of length <= 256",
        ),
        ({"topics": {"orders": {}}, "cursor": 1}, "cursor: Expected `str | null`, got `int`"),
        ({"topics": {"orders": {}}, "cursor": "made up"}, "cursor must be the id of an event"),
        ({"topics": {"orders": {}}, "cursor": "\ud800"}, "The body: Expected text in Unicode"),
        ({"topics": {"orders": {}}, "node": 1}, "node: Expected `str | null`, got `int`"),
        ({"topics": {"orders": {}}, "limit": "all"}, "limit: Expected `int | null`, got `str`"),
        ({"topics": {"orders": {}}, "max_batch_bytes": -1}, "max_batch_bytes: Expected `int` >= 0"),
        ({"topics": {"orders": {}}, "heartbeat_ms": "1s"}, "heartbeat_ms: Expected `int | null`"),
        ({"topics": {"orders": {}}, "include_data": 0}, "include_data: Expected `bool | null`"),
    ],
)
def test_v0_watch_requests_with_invalid_parameters_are_refused(
    v0: V0, content: Any, message: str
) -> None:
    v0.append(1)
    assert message in v0.message("POST", WATCH, content)


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"{}}", b'{"a" 1}', b"{'a': 1}", b'{"a": NaN}', b"\xff", b"{1: 2}",
        b'{"records": [1 2]}', b'{"records": [{"data": }]}', b'{"records": [{"data": 1}',
        b'{"records": ' + b"[" * 100_000, b'{"records": [{"data": ' + b"[" * 100_000,
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", [TOPIC, f"{TOPIC}/diff"])
def test_a_v0_body_that_is_not_json_is_refused(v0: V0, path: str, body: bytes) -> None:
    v0.append(1)
    with closing(v0.rest.connect()) as connection:
        connection.request("POST", path, body)
        answer = connection.getresponse()
        assert answer.status == 400
        assert b"The body is not JSON" in answer.read()
    assert v0.data() == [1]


def test_a_v0_body_with_a_wrong_content_encoding_is_refused(v0: V0) -> None:
    v0.append(1)
    status, _, text = v0.rest.raw("POST", TOPIC, b'{"records": []}', **{"Content-Encoding": "gzip"})
    assert (status, json.loads(text)["error"]["code"]) == (400, "invalid_request")
    assert v0.data() == [1]


def test_a_v0_body_that_is_too_large_is_refused(v0: V0) -> None:
    v0.append(1)
    with closing(v0.rest.connect()) as connection:
        connection.request("POST", TOPIC, b" " * (10 * 1024 * 1024 + 1))
        answer = connection.getresponse()
        assert (answer.status, b"payload size" in answer.read()) == (400, True)


@pytest.mark.parametrize(
    ("verb", "path", "message"),
    [
        ("GET", "/v0/topics?page_size=x", "page_size must be a whole number"),
        ("GET", "/v0/topics?page_size=-1", "page_size must be a whole number"),
        ("GET", "/v0/topics?cursor=x", "page_token"),
        ("GET", "/v0/topics?prefix=x", "There is no parameter 'prefix'"),
        ("GET", f"{TOPIC}?touch=false", "There is no parameter 'touch'"),
        ("GET", f"{TOPIC}?project=a/b", "Invalid resource name"),
        ("GET", f"{TOPIC}?project=", "Invalid resource name"),
        ("GET", "/v0/topics/1", '"1" cannot name a topic'),
        ("GET", "/v0/topics/goog", '"goog" cannot name a topic'),
        ("PUT", "/v0/topics/" + "x" * 256, "cannot name a topic"),
        ("PUT", "/v0/topics/" + "%3A" * 100, "cannot name a topic"),
        ("PUT", "/v0/topics/%0A", '"\\n" cannot name a topic'),
        ("POST", "/v0/topics/1/diff", "cannot name a topic"),
        ("GET", "/v0/routers/1", '"1" cannot name a router'),
        ("DELETE", "/v0/routers/1", "cannot name a router"),
        ("PUT", "/v0/topics/caf%E9", "The name in the path must be percent-encoded UTF-8"),
        ("PUT", "/v0/topics/cafe?project=caf%E9", "The query must be percent-encoded UTF-8"),
    ],
)
def test_invalid_v0_names_and_query_parameters_are_refused(
    v0: V0, verb: str, path: str, message: str
) -> None:
    assert message in v0.message(verb, path)


@pytest.mark.parametrize("verb", ["GET", "DELETE"])
def test_a_v0_call_that_takes_no_parameters_refuses_a_body_with_fields(v0: V0, verb: str) -> None:
    v0.ok("PUT", TOPIC)
    message = v0.message(verb, TOPIC, {"if_empty": True})
    assert message == "The body: Object contains unknown field `if_empty`; the fields are none."
    assert v0.ok("GET", TOPIC)


@pytest.mark.parametrize(
    ("verb", "path", "refusal"),
    [
        ("GET", TOPIC, (404, "not_found")),
        ("POST", f"{TOPIC}/diff", (404, "not_found")),
        ("POST", f"{TOPIC}/delete", (404, "not_found")),
        ("GET", ROUTER, (404, "not_found")),
        ("GET", f"{WATCH}/wid_x", (404, "not_found")),
        ("GET", "/v0", (404, "not_found")),
        ("GET", "/v0/", (404, "not_found")),
        ("GET", "/v0/%0A", (404, "not_found")),
        ("GET", "/v0/topics/", (404, "not_found")),
        ("GET", "/v0/topic", (404, "not_found")),
        ("POST", f"{TOPIC}/claim", (404, "not_found")),
        ("PATCH", TOPIC, (405, "method_not_allowed")),
        ("GET", f"{TOPIC}/diff", (405, "method_not_allowed")),
        ("GET", WATCH, (405, "method_not_allowed")),
        ("POST", "/v0/topics", (405, "method_not_allowed")),
    ],
)
def test_v0_calls_for_missing_resources_are_answered_with_404(
    v0: V0, verb: str, path: str, refusal: tuple[int, str]
) -> None:
    content = {"before_seq": 1} if path.endswith("/delete") else None
    assert v0.refused(verb, path, content) == refusal
    assert v0.ok("GET", "/v0/topics")["topics"] == []
