"""Faults in the tests of users, with the SDK as the client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pullstream import FlowControl, Message
from pullstream_protocol.errors import Aborted, PermissionDenied, RpcError, Unavailable
from tests.subscriber.behaviour.stage import SUBSCRIPTION, Log, Stage, stage
from tests.subscriber.streaming.fakes import TIMEOUT, eventually


@pytest.fixture
def here() -> Iterator[Stage]:
    with stage(enable_exactly_once_delivery=True) as here:
        yield here


def test_the_sdk_retries_acknowledgements_of_ack_ids_that_failed_transiently(here: Stage) -> None:
    """The user's future succeeds after another attempt."""

    def fail(request: Any) -> RpcError:
        metadata = dict.fromkeys(request.ack_ids, "TRANSIENT_FAILURE_UNORDERED_ACK_ID")
        return Aborted("again", reason="EXACTLY_ONCE_ACKID_FAILURE", metadata=metadata)

    fault = here.emulator.faults.error("Acknowledge", fail, times=1)
    futures = []

    def acknowledge(message: Message) -> None:
        futures.append(message.ack_with_response())

    collected = Log(then=acknowledge)
    here.client.subscribe(SUBSCRIPTION, collected)
    here.publish(b"a")
    # The callback acknowledges after the message is in the log.
    eventually(lambda: len(futures) == 1)
    futures[0].result(timeout=TIMEOUT)
    assert fault.hits == 1
    assert here.backlog == 0


def test_the_sdk_repeats_an_acknowledgement_whose_reply_was_lost(here: Stage) -> None:
    """The message is acknowledged, whatever the second answer says."""
    fault = here.emulator.faults.lose_reply("Acknowledge", times=1)
    collected = Log()
    here.client.subscribe(SUBSCRIPTION, collected)
    here.publish(b"a")
    fault.wait_for_hits()
    eventually(lambda: here.backlog == 0)
    assert collected.data == [b"a"]


@pytest.mark.parametrize("how", ["abort", "close", "after"])
def test_the_sdk_reopens_a_streaming_pull_that_a_fault_has_ended(here: Stage, how: str) -> None:
    """The stream may end with an error, with OK, or while messages are handled."""
    faults = here.emulator.faults
    collected = Log()
    future = here.client.subscribe(SUBSCRIPTION, collected, FlowControl(max_messages=1))
    here.publish(b"a")
    collected.wait_for(1)
    eventually(lambda: here.backlog == 0)
    if how == "abort":
        assert faults.abort_streams(Unavailable("away")).hits == 1
    elif how == "close":
        assert faults.close_streams().hits == 1
    else:
        fault = faults.abort_streams_after(1, Unavailable("away"), times=1)
    for data in (b"b", b"c"):
        here.publish(data)
        eventually(lambda: here.backlog == 0)
    assert how != "after" or fault.hits == 1
    assert set(collected.data) == {b"a", b"b", b"c"}
    assert future.running()


def test_a_terminal_error_of_the_streaming_pull_ends_the_future_of_sdk_subscribe(
    here: Stage,
) -> None:
    """The subscription's future has that error."""
    here.emulator.faults.error("StreamingPull", PermissionDenied("not yours"))
    future = here.client.subscribe(SUBSCRIPTION, Log())
    assert isinstance(future.exception(TIMEOUT), PermissionDenied)
