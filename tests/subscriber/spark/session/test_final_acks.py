"""Settling a batch without a subscription: recorded, acknowledged and deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pullstream.client import SubscriberClient
from pullstream.rpc.rpcs import Rpcs
from pullstream.rpc.sansio import UnaryCall
from pullstream.spark.errors import SpoolError
from pullstream.spark.session.final_acks import acknowledge, settle
from pullstream.spark.session.session import IngestSession
from pullstream.spark.session.settings import IngestSettings
from pullstream_emulator import Emulator
from pullstream_protocol.errors import InvalidArgument, Unavailable
from tests.subscriber.spark.session.world import (
    SUBSCRIPTION,
    FillingDisk,
    acked,
    make_subscription,
    publish,
    settings_of,
)
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

ACK = "Acknowledge"


@pytest.fixture
def settings(broker: Emulator, spool: Path) -> IngestSettings:
    """Return settings of a closed session that has left two segments of two messages."""
    make_subscription(broker)
    publish(broker, 4)
    settings = settings_of(broker, spool, max_messages_per_trigger=2, idle_wait=TIMEOUT, linger=1)
    # The session cannot record its commits.
    with IngestSession(settings, disk=FillingDisk(half_full=True)) as session:
        assert (session.latest(0), session.latest(1)) == (1, 2)
    return settings


def segments(settings: IngestSettings) -> int:
    return len(list(settings.spool_dir.glob("seg-*")))


def test_final_acks_of_an_ingest_run_acknowledge_only_the_committed_batches(
    broker: Emulator, settings: IngestSettings
) -> None:
    """Only the given batches are acknowledged, by unary calls, and a second call does nothing."""
    deliveries = len(broker.history.deliveries())
    assert settle(settings, 1) == 0
    assert (len(acked(broker)), segments(settings)) == (2, 1)
    assert settle(settings, 1) == 0
    assert settle(settings, 2) == 0
    assert (len(acked(broker)), segments(settings)) == (4, 0)
    assert len(broker.history.deliveries()) == deliveries


def test_an_ingest_session_can_continue_on_a_spool_whose_final_acks_partly_failed(
    broker: Emulator, settings: IngestSettings
) -> None:
    """The session suppresses messages that are redelivered anyway, and keeps unsettled ones."""
    broker.faults.error(ACK, InvalidArgument("no"), resource=SUBSCRIPTION)
    assert settle(settings, 1) == 2
    broker.faults.clear()
    broker.clock.advance(61)
    with IngestSession(settings) as session:
        (segment,) = session.segments(1, 2)
        assert segment.rows == 2
        eventually(lambda: len(acked(broker)) == 2)
        # Messages of the kept segment are redelivered as well.
        eventually(lambda: session.report()["suppressedDuplicates"] == 4)
        session.commit(2)
        eventually(lambda: broker.backlog(SUBSCRIPTION) == 0)


def test_final_acks_of_an_ingest_run_retry_transient_failures_until_the_time_limit(
    broker: Emulator, settings: IngestSettings
) -> None:
    """The retries end after the time limit."""
    broker.faults.error(ACK, Unavailable("busy"), times=2)
    assert settle(settings, 1) == 0
    broker.faults.error(ACK, Unavailable("busy"))
    assert settle(settings, 2, timeout=0.3) == 2
    assert segments(settings) == 0


def test_final_acks_of_an_ingest_run_refuse_a_spool_that_a_running_session_uses(
    settings: IngestSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A running session acknowledges its own messages."""
    monkeypatch.setattr("pullstream.spark.spool.spool.LOCK_WAIT", 0.0)
    with IngestSession(settings) as session:
        session.segments(0, 1)
        with pytest.raises(SpoolError, match="in use by another process"):
            settle(settings, 1)
    assert settle(settings, 1) == 0


def test_final_acks_of_an_ingest_run_count_success_and_failure_of_each_ack_id_separately(
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


def test_final_acks_of_an_ingest_run_retry_ack_ids_that_the_servers_error_does_not_name(
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
