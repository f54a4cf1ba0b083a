"""The feed: the subscription of an ingestion, from its opening to its end."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from subscriber.client import SubscriberClient
from subscriber.futures import StreamingPullFuture
from subscriber.message import Message
from subscriber.streaming.settings import Batching, Settings
from subscriber.streaming.state import SubscriptionState

from .intake import Intake
from .settings import IngestSettings

_log = logging.getLogger("pullstream.spark")

# The longest list that the subscription hands over, and how long it waits to fill one, in seconds.
# Rows are made of a list at a time, and of a short one each takes twice as long.
_LIST_LENGTH = 2500
_LIST_WAIT = 0.03

# How long `close` waits for the client after the subscription has had its time, in seconds.
_CLIENT_WAIT = 0.1

_ENDING = (SubscriptionState.CLOSING, SubscriptionState.CLOSED)


class Feed:
    """Owns the client and its one subscription, whose callback is the intake.

    Called by the session's thread only. Made, it receives; nothing that was received is settled by
    it but what is neither in a segment nor acknowledged when it stops: that is given back.

    Args:
        give_up_after: seconds without a working stream after which it ends with an error.
    """

    def __init__(
        self,
        client: SubscriberClient,
        settings: IngestSettings,
        intake: Intake,
        *,
        give_up_after: float | None,
    ) -> None:
        self._client = client
        limits = settings.flow_control
        self._future: StreamingPullFuture = client.subscribe_with(
            settings.subscription,
            intake,
            Settings(
                limits,
                give_up_after=give_up_after,
                hooks=(intake,),
                batching=Batching(min(_LIST_LENGTH, limits.max_messages), _LIST_WAIT),
                # Rows are made of the whole list at once.
                unparsed=True,
            ),
            # One, because it only hands over; and lists come in the order of the stream.
            max_workers=1,
        )

    @property
    def unanswered(self) -> int:
        """Acknowledgements that the server has not confirmed."""
        return self._future.statistics().unanswered

    def adopt(self, ack_ids: Sequence[str], size: int) -> list[Message]:
        """Take on leases of an earlier process; see `StreamingPullFuture.adopt`."""
        return self._future.adopt(ack_ids, size)

    def check(self) -> None:
        """Raise the error that ends the subscription, if there is one."""
        # It is known only when the shutdown that it causes is over, which is soon.
        if self._future.state in _ENDING and (error := self._future.exception()) is not None:
            raise error

    def stop(self, timeout: float) -> None:
        """Receive nothing more, and have the acknowledgements answered. Idempotent."""
        self._future.close(timeout, "nack")
        if self.unanswered:
            _log.warning(
                "the server has not confirmed %d acknowledgements: if these messages come again, "
                "they are known",
                self.unanswered,
            )

    def close(self, timeout: float) -> None:
        """As `stop`, and end the connection."""
        try:
            self.stop(timeout)
        finally:
            self._client.close(_CLIENT_WAIT, "nack")
