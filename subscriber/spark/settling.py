"""Settling what is committed without receiving, for who has processed it and wants no more."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from protocol.clock import SYSTEM_CLOCK, Clock
from protocol.errors import RpcError
from subscriber.client import SubscriberClient
from subscriber.streaming.outbox import Outbox
from subscriber.streaming.requests import ACK

from .disk import Disk
from .done_index import DoneIndex
from .keys import keys_of
from .settings import IngestSettings
from .spool import Spool

_log = logging.getLogger("pullstream.spark")


def settle(
    settings: IngestSettings,
    end: int,
    *,
    timeout: float = 10.0,
    clock: Clock = SYSTEM_CLOCK,
    connect: Callable[[], SubscriberClient] | None = None,
) -> int:
    """Everything up to `end` is committed: note that, acknowledge it, and delete its segments.

    No stream is opened and no lease extended. Acknowledgements go out by single calls, for
    `timeout` seconds at most.

    Returns:
        How many messages the server did not confirm. Should they come again, they are known.

    Raises:
        SpoolError: the spool is in use, or belongs to another subscription.
        OSError: the done index could not be written; then that segment and those after it are as
            they were.
    """
    disk = Disk()
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
        with connect() if connect else SubscriberClient(endpoint=settings.endpoint) as client:
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
    """Acknowledge by single calls, as many as it takes; returns how many ids were not confirmed.

    Calls that fail for a passing reason are made again until `timeout` seconds are over. With
    exactly-once delivery the reply says which ids were taken.
    """
    outbox = Outbox()
    outbox.add(ACK, ack_ids)
    end = clock.monotonic() + timeout
    refused = 0
    while not outbox.is_empty and (left := end - clock.monotonic()) > 0:
        request = outbox.next_request(clock.monotonic())
        if request is None:
            # The pause before another try.
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
        answer = outbox.answered(request, error, clock.monotonic())
        refused += len(answer.failed)
    unconfirmed = refused + outbox.unanswered
    if unconfirmed:
        _log.warning(
            "the server has not confirmed %d acknowledgements: if these messages come again, they "
            "are known",
            unconfirmed,
        )
    return unconfirmed
