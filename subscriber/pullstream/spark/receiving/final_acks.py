"""Acknowledgement of messages without a stream, after a batch read."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pullstream.client import SubscriberClient
from pullstream.fetch.settle_call import settle as settle_messages
from pullstream.rpc.sansio import run
from pullstream.rpc.unary_client import rpcs_of
from pullstream.streaming.ack_requests import Purpose
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock

_log = logging.getLogger("pullstream.spark")


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
