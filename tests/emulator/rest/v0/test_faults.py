"""Faults on /v0, with the same effect as on gRPC, and internal errors."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from pullstream_emulator import Emulator
from pullstream_protocol.errors import Unavailable
from tests.emulator.v0_client import TOPIC, V0

RECORDS = {"records": [{"data": 1}]}


def test_an_error_fault_of_a_grpc_method_also_refuses_the_corresponding_v0_call(
    v0: V0, emulator: Emulator
) -> None:
    """The status is the one that corresponds to the gRPC code, with a Retry-After header."""
    with emulator.faults.error("Append", Unavailable("Not now."), times=1):
        with closing(v0.rest.connect()) as connection:
            connection.request("POST", TOPIC, b'{"records": [{"data": 1}]}')
            answer = connection.getresponse()
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
            assert answer.read() == b'{"error":{"code":"unavailable","message":"Not now."}}\n'
        assert v0.append(2)["head_seq"] == 1


def test_a_v0_append_whose_reply_a_fault_drops_has_taken_effect(v0: V0, emulator: Emulator) -> None:
    """A second attempt with the same key has no further effect."""
    keyed: Any = {**RECORDS, "idempotency_key": "k"}
    with emulator.faults.lose_reply("Append", times=1):
        assert v0.refused("POST", TOPIC, keyed) == (503, "unavailable")
    assert v0.ok("POST", TOPIC, keyed)["deduped"] is True
    assert v0.data() == [1]


def test_a_v0_watch_stream_refused_by_an_error_fault_is_answered_with_an_error_status(
    v0: V0, emulator: Emulator
) -> None:
    """The stream is refused like any call.

    A stream that fails later reports the error in an event.
    """
    v0.append(1)
    path = v0.watch()
    with emulator.faults.error("Watch", Unavailable("Not now."), times=1):
        assert v0.refused("GET", path) == (503, "unavailable")
    with v0.stream(path) as stream:
        stream.next_of("caught-up")
        reason = Unavailable("Not any more.")
        emulator.inspect(lambda engine: emulator.faults.end_calls(reason))
        v0.append(2)
        assert stream.rest()[-1].data == {"code": "unavailable", "message": "Not any more."}


def test_an_internal_error_in_a_v0_call_is_answered_with_500_and_logged(
    v0: V0, emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    """The caller gets one sentence, and the log has the traceback."""

    def fail(request: Any) -> None:
        raise ValueError("a mistake of ours")

    with emulator.faults.error("GetFeed", fail):
        status, body = v0.rest.call("GET", TOPIC)
    assert status == 500
    assert body == {"error": {"code": "internal", "message": "GetFeed failed inside the broker."}}
    assert "a mistake of ours" in caplog.text
