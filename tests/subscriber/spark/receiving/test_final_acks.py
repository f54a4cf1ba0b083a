"""Acknowledgement of messages without a stream."""

from __future__ import annotations

from typing import Any

import pytest

from pullstream.client import SubscriberClient
from pullstream.rpc.rpcs import Rpcs
from pullstream.rpc.sansio import UnaryCall
from pullstream.spark.receiving.final_acks import acknowledge
from pullstream_emulator import Emulator
from pullstream_protocol.errors import InvalidArgument, Unavailable
from tests.subscriber.spark.session.world import (
    SUBSCRIPTION,
    acked,
    make_subscription,
    publish,
)

ACK = "Acknowledge"


def test_final_acks_of_a_batch_read_retry_transient_failures_until_the_time_limit(
    broker: Emulator,
) -> None:
    """The retries end after the time limit."""
    make_subscription(broker)
    publish(broker, 2)
    with SubscriberClient(endpoint=broker.endpoint) as client:
        pulled = client.pull(subscription=SUBSCRIPTION, max_messages=2).received_messages
        ack_ids = [one.ack_id for one in pulled]
        broker.faults.error(ACK, Unavailable("busy"))
        assert acknowledge(client, SUBSCRIPTION, ack_ids, 0.3) == 2
        broker.faults.clear()
        broker.faults.error(ACK, Unavailable("busy"), times=2)
        assert acknowledge(client, SUBSCRIPTION, ack_ids, 10.0) == 0
    assert len(acked(broker)) == 2


def test_final_acks_of_a_batch_read_count_success_and_failure_of_each_ack_id_separately(
    broker: Emulator,
) -> None:
    """With exactly-once delivery, the server takes the valid ids and names the others."""
    make_subscription(broker, enable_exactly_once_delivery=True)
    publish(broker, 3)
    with SubscriberClient(endpoint=broker.endpoint) as client:
        pulled = client.pull(subscription=SUBSCRIPTION, max_messages=3).received_messages
        valid = [one.ack_id for one in pulled]
        broker.clock.advance(61)
        again = client.pull(subscription=SUBSCRIPTION, max_messages=1).received_messages
        mixed = [*valid, again[0].ack_id]
        assert acknowledge(client, SUBSCRIPTION, mixed, 10.0) == 3
    assert acked(broker) == {again[0].message.message_id}


def test_final_acks_of_a_batch_read_retry_ack_ids_that_the_servers_error_does_not_name(
    broker: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may have refused the whole request because of one id."""
    make_subscription(broker)
    publish(broker, 3)
    with SubscriberClient(endpoint=broker.endpoint) as client:
        pulled = client.pull(subscription=SUBSCRIPTION, max_messages=3).received_messages
        ack_ids = [one.ack_id for one in pulled]
        named = {ack_ids[0]: "PERMANENT_FAILURE_INVALID_ACK_ID"}
        refusal = InvalidArgument("one is invalid", reason="R", metadata=named)
        make, sent = UnaryCall.make, list[list[str]]()

        def refuse_once(call: UnaryCall, rpcs: Rpcs) -> None:
            # A fault of the broker would acknowledge the ids that the error does not name.
            request: Any = call.request
            sent.append(list(request.ack_ids))
            if len(sent) == 1:
                raise refusal
            make(call, rpcs)

        monkeypatch.setattr(UnaryCall, "make", refuse_once)
        assert acknowledge(client, SUBSCRIPTION, ack_ids, 10.0) == 1
    assert sent == [ack_ids, ack_ids[1:]]
    assert acked(broker) == {one.message.message_id for one in pulled[1:]}
