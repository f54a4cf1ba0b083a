"""JSON of many megabytes over HTTP, while others use the broker."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode

import pytest

from pullstream_emulator import Emulator
from tests.emulator.loop_steps import measured_steps, on_this_machine
from tests.emulator.rest_client import V1_SUBSCRIPTION, V1_TOPIC, RestClient
from tests.emulator.v0_client import V0

# Limit of one step, in CPU seconds. Copies of 9 MB take most of it.
LONGEST_STEP = 0.2

ATTRIBUTES = {f"k{number}": "v" for number in range(100)}


@pytest.fixture
def rest(rest: RestClient) -> RestClient:
    rest.create()
    return rest


def test_a_large_publish_and_pull_over_http_do_not_block_the_event_loop(rest: RestClient) -> None:
    """The messages have 100,000 attributes, each a value to convert."""
    data = b64encode(b"x" * 500).decode()
    messages = [{"data": data, "attributes": ATTRIBUTES, "orderingKey": "k"}] * 1000
    with measured_steps() as steps:
        published = rest.ok("POST", f"{V1_TOPIC}:publish", {"messages": messages})
        pulled = rest.ok("POST", f"{V1_SUBSCRIPTION}:pull", {"maxMessages": 1000})
    assert len(published["messageIds"]) == 1000
    received = [each["message"] for each in pulled["receivedMessages"]]
    assert len(received) == 1000
    assert received[-1]["data"] == data
    assert received[-1]["attributes"] == ATTRIBUTES
    assert steps.longest < on_this_machine(LONGEST_STEP)


def test_an_http_publish_of_too_many_messages_is_refused_without_blocking_the_event_loop(
    rest: RestClient,
) -> None:
    body = b'{"messages":[' + b"{}," * 300_000 + b"{}]}"
    with measured_steps() as steps:
        status, _, text = rest.raw("POST", f"{V1_TOPIC}:publish", body)
    assert status == 400
    assert "message_count" in text
    assert steps.longest < on_this_machine(LONGEST_STEP)


def test_an_error_deep_in_a_large_rest_request_body_is_reported_with_google_s_text(
    rest: RestClient,
) -> None:
    body = json.dumps({"messages": [{"data": "eA=="}] * 20_000 + [{"date": ""}]}).encode()
    status, _, text = rest.raw("POST", f"{V1_TOPIC}:publish", body)
    assert status == 400
    assert "Unknown name \\\"date\\\" at 'messages[20000]': Cannot find field." in text


def test_a_message_of_9_mb_over_http_does_not_block_the_event_loop(rest: RestClient) -> None:
    data = bytes(range(256)) * 28_000
    body = {"messages": [{"data": b64encode(data).decode()}]}
    with measured_steps() as steps:
        rest.ok("POST", f"{V1_TOPIC}:publish", body)
        pulled = rest.ok("POST", f"{V1_SUBSCRIPTION}:pull", {"maxMessages": 1})
    assert b64decode(pulled["receivedMessages"][0]["message"]["data"]) == data
    assert steps.longest < on_this_machine(LONGEST_STEP)


def test_large_v0_appends_and_reads_do_not_block_the_event_loop(v0: V0) -> None:
    numbers = list(range(100_000))
    with measured_steps() as steps:
        v0.append(*[numbers] * 10)
        assert v0.data(max_batch_bytes=8_000_000) == [numbers] * 10
        with v0.stream(v0.watch(max_batch_bytes=8_000_000)) as stream:
            assert len(stream.next().data["records"]) == 10
    assert steps.longest < on_this_machine(LONGEST_STEP)


def test_a_v0_request_other_than_append_with_a_large_body_is_refused(emulator: Emulator) -> None:
    v0 = V0(emulator.endpoint)
    v0.append(1)
    status, _, text = v0.rest.raw("POST", "/v0/topics/orders/diff", b" " * 600_000 + b"{}")
    assert status == 400
    assert "this endpoint accepts 524288" in text
