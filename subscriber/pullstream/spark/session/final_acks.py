"""Acknowledgement of committed segments without a stream, after a finished batch read."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from pullstream.client import SubscriberClient
from pullstream.spark.spool.atomic_files import AtomicFiles
from pullstream.spark.spool.done_index import DoneIndex
from pullstream.spark.spool.message_keys import keys_of
from pullstream.spark.spool.spool import Spool
from pullstream.streaming.ack_requests import Purpose
from pullstream.streaming.outbox import Outbox
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock
from pullstream_protocol.errors import RpcError

from .settings import IngestSettings

_log = logging.getLogger("pullstream.spark")


def settle(
    settings: IngestSettings,
    end: int,
    *,
    timeout: float = 10.0,
    clock: Clock = SYSTEM_CLOCK,
    connect: Callable[[], SubscriberClient] | None = None,
) -> int:
    """Commit everything up to `end`: record it, acknowledge it, and delete the segments.

    No stream is opened and no lease is extended. Acknowledgements are sent by unary calls.

    Args:
        settings: The subscription and its spool.
        end: Number of the last committed segment.
        timeout: Maximum duration of the acknowledgements, in seconds.
        clock: Source of time.
        connect: Creates the client, for tests.

    Returns:
        Number of messages that the server has not confirmed. If they are redelivered, they are
        recognized as duplicates.

    Raises:
        SpoolError: The spool is in use, or belongs to another subscription.
        OSError: The done index cannot be written; this segment and the later ones are unchanged.
    """
    disk = AtomicFiles()
    spool = Spool(settings, disk, clock)
    spool.open()
    try:
        done = DoneIndex(settings, disk, clock)
        done.load()
        ack_ids: list[str] = []
        for seq in [seq for seq in spool.numbers if seq <= end]:
            leases = spool.get(seq).leases()
            done.add(seq, keys_of(list(leases)))
            ack_ids += leases.values()
            spool.remove(seq)
        if not ack_ids:
            return 0
        with connect() if connect else SubscriberClient(**settings.connection) as client:
            return acknowledge(client, settings.subscription, ack_ids, timeout, clock)
    finally:
        spool.close()


def acknowledge(
    client: SubscriberClient,
    subscription: str,
    ack_ids: Iterable[str],
    timeout: float,
    clock: Clock = SYSTEM_CLOCK,
) -> int:
    """Acknowledge by as many unary calls as needed.

    Calls that fail with a transient error are repeated until `timeout`. With exactly-once delivery,
    the reply says which ack ids were accepted.

    Args:
        client: The client.
        subscription: Full name of the subscription.
        ack_ids: Ack ids of the messages.
        timeout: Maximum duration in seconds.
        clock: Source of time.

    Returns:
        Number of ack ids that the server has not confirmed.
    """
    outbox = Outbox()
    outbox.add_ack_ids(Purpose.ACK, ack_ids)
    end = clock.monotonic() + timeout
    refused = 0
    while not outbox.is_empty and (left := end - clock.monotonic()) > 0:
        request = outbox.next_request(clock.monotonic())
        if request is None:
            # The pause before a retry.
            due = min(outbox.next_due() or end, end)
            threading.Event().wait(max(due - clock.monotonic(), 0.0))
            continue
        error = None
        try:
            client.acknowledge(
                subscription=subscription, ack_ids=request.ack_ids, timeout=left, retry=None
            )
        except RpcError as raised:
            error = raised
        answer = outbox.record_answer(request, error, clock.monotonic())
        refused += len(answer.failed)
    unconfirmed = refused + outbox.unanswered
    if unconfirmed:
        _log.warning(
            "the server has not confirmed %d acknowledgements; if these messages are redelivered, "
            "they are recognized as duplicates",
            unconfirmed,
        )
    return unconfirmed
