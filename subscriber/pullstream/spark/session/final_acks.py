"""Acknowledgement of committed segments without a stream, after a finished batch read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from pullstream.client import SubscriberClient
from pullstream.fetch.settle_call import settle as settle_messages
from pullstream.rpc.sansio import run
from pullstream.rpc.unary_client import rpcs_of
from pullstream.spark.spool.atomic_files import AtomicFiles
from pullstream.spark.spool.done_index import DoneIndex
from pullstream.spark.spool.message_keys import keys_of
from pullstream.spark.spool.spool import Spool
from pullstream.streaming.ack_requests import Purpose
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock

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
    steps = settle_messages(
        subscription, Purpose.ACK, ack_ids, clock, retry_for=timeout, timeout=timeout
    )
    unconfirmed = len(run(steps, rpcs_of(client), clock))
    if unconfirmed:
        _log.warning(
            "the server has not confirmed %d acknowledgements; if these messages are redelivered, "
            "they are recognized as duplicates",
            unconfirmed,
        )
    return unconfirmed
