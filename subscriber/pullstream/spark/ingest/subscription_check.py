"""The check that a subscription can be read, before a job starts Spark and makes a table."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from google.auth.exceptions import GoogleAuthError, TransportError

from pullstream.client import SubscriberClient
from pullstream.rpc.endpoint import locate
from pullstream.spark.errors import FailureCause, ingest_error
from pullstream.spark.protocol.receiver import attempts_warning
from pullstream.spark.receiving.outage_note import Outage
from pullstream.spark.session.source_session import DRAIN_GIVE_UP
from pullstream.spark.settings import IngestSettings
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock
from pullstream_protocol.errors import (
    DeadlineExceeded,
    PermissionDenied,
    ResourceExhausted,
    RpcError,
    Unavailable,
)

if TYPE_CHECKING:
    from pullstream_protocol.messages import pubsub_pb2 as pubsub

_log = logging.getLogger("pullstream.spark")

# Seconds that an attempt may take, and from its end to the next one.
_ATTEMPT = 2.0
_PAUSE = 1.0


# Errors that may end by themselves.
_UNREACHABLE = (Unavailable, DeadlineExceeded, ResourceExhausted, TransportError)


class Asked(Protocol):
    """The part of a client that is used."""

    def get_subscription(
        self, *, subscription: str, retry: None, timeout: float
    ) -> pubsub.Subscription:
        """Return the settings of a subscription."""


def check_subscription(
    settings: IngestSettings,
    *,
    must_end: bool,
    pause: Callable[[float], bool],
    tell: Callable[[Outage | None], None],
    waited: float = 0.0,
    clock: Clock = SYSTEM_CLOCK,
    connect: Callable[[], AbstractContextManager[Asked]] | None = None,
) -> None:
    """Check that a subscription exists and gives messages to a stream; wait for its server.

    Args:
        settings: The subscription and its server.
        must_end: Whether to give up after a minute without the server, as the source does.
        pause: Waits for a number of seconds, and returns True if the job is to stop.
        tell: Takes the outage after each failed attempt, and None at its end.
        waited: Number of seconds of the minute that are over.
        clock: Source of time.
        connect: Creates the client, for tests.

    Raises:
        IngestError: The subscription cannot be read, or the server cannot be reached.
        ValueError: The connection's settings are invalid.
    """
    address = locate(endpoint=settings.endpoint).address
    outage: Outage | None = None
    began = clock.monotonic() - waited
    try:
        with (connect or (lambda: SubscriberClient(**settings.connection)))() as client:
            while True:
                try:
                    found = _check(client, settings.subscription)
                    break
                except _UNREACHABLE as error:
                    outage = outage or Outage.by(error, clock.now())
                    tell(outage)
                    if must_end and clock.monotonic() - began >= DRAIN_GIVE_UP:
                        raise
                    if pause(_PAUSE):
                        return
    except (RpcError, GoogleAuthError) as error:
        text = f"the job cannot start: {type(error).__name__}: {error}"
        if isinstance(error, _UNREACHABLE):
            text += (
                f". The server at {address} did not answer for a minute; start it, or give the "
                "address of another one (--endpoint, or in Python the option 'endpoint')"
            )
        raise ingest_error(text, FailureCause.SOURCE) from error
    if outage is not None:
        tell(None)
    attempts = 0 if found is None else found.dead_letter_policy.max_delivery_attempts
    if warning := attempts_warning(settings.acknowledge, attempts):
        _log.warning("%s: %s", settings.subscription, warning)


def _check(client: Asked, name: str) -> pubsub.Subscription | None:
    """Return the settings of the subscription; None: they cannot be read."""
    try:
        found = client.get_subscription(subscription=name, retry=None, timeout=_ATTEMPT)
    except PermissionDenied:
        # A reader of messages need not have the right to read settings. The stream will tell.
        return None
    if found.push_config.push_endpoint or found.bigquery_config.table:
        reason = "it pushes its messages elsewhere"
    elif found.cloud_storage_config.bucket:
        reason = "it writes its messages to Cloud Storage"
    elif found.detached:
        reason = "it is detached from its topic"
    else:
        return found
    raise ingest_error(
        f"the job cannot read {name}: {reason}; use a subscription that is pulled",
        FailureCause.SOURCE,
    )
