"""The subscription of a receiver, from its opening to its end."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pullstream.client import SubscriberClient, subscribe_with
from pullstream.futures import StreamingPullFuture
from pullstream.runtime.lifecycle import SubscriptionState
from pullstream.spark.settings import IngestSettings
from pullstream.statistics import Statistics
from pullstream.streaming.settings import Batching, StreamingSettings

from .message_buffer import MessageBuffer
from .outage_note import Outage, OutageNote

_log = logging.getLogger("pullstream.spark")

# Maximum length of the lists that the callback receives, and the wait to fill one, in seconds. Rows
# are made for a whole list at once; in a short list, each row takes twice as long.
_LIST_LENGTH = 2500
_LIST_WAIT = 0.03

# Time that `close` waits for the client after the subscription has stopped, in seconds.
_CLIENT_WAIT = 0.1

_ENDING = (SubscriptionState.CLOSING, SubscriptionState.CLOSED)


class SubscriptionSource:
    """Owner of the client and its one subscription, whose callback is the message buffer.

    One thread at a time calls it. It receives messages from its creation. It settles nothing,
    except that `stop` returns the messages that are neither acknowledged nor in a segment.

    Attributes:
        client: The client, which `close` closes.

    Args:
        settings: The subscription and its limits.
        buffer: The message buffer.
        connect: Creates the client, for tests.
        give_up_after: Seconds without a working stream after which the subscription fails. None:
            never.
    """

    def __init__(
        self,
        settings: IngestSettings,
        buffer: MessageBuffer,
        connect: Callable[[], SubscriberClient] | None = None,
        *,
        give_up_after: float | None,
    ) -> None:
        self.client: SubscriberClient = (
            connect() if connect else SubscriberClient(**settings.connection)
        )
        self._note = OutageNote(settings.notes_folder)
        limits = settings.flow_control
        self._future: StreamingPullFuture = subscribe_with(
            self.client,
            settings.subscription,
            buffer,
            StreamingSettings(
                limits,
                give_up_after=give_up_after,
                streams=settings.streams,
                hooks=(buffer, self._note),
                # Rows are made from the whole list at once.
                batching=Batching(min(_LIST_LENGTH, limits.max_messages), _LIST_WAIT, columns=True),
            ),
            # One worker, because it only hands messages over, and so lists arrive in the stream's
            # order.
            max_workers=1,
        )

    @property
    def statistics(self) -> Statistics:
        """The statistics of the subscription."""
        return self._future.statistics()

    @property
    def outage(self) -> Outage | None:
        """The present outage; None while the stream works."""
        return self._note.present

    @property
    def unanswered(self) -> int:
        """Acknowledgements that the server has not confirmed."""
        return self._future.statistics().unanswered

    def check(self) -> None:
        """Raise the error that ended the subscription, if there is one."""
        # The error is known when the shutdown that it causes is over, which takes little time.
        if self._future.state in _ENDING and (error := self._future.exception()) is not None:
            raise error

    def stop(self, timeout: float) -> None:
        """Stop receiving and wait for the answers to the acknowledgements. Idempotent."""
        self._future.close(timeout, "nack")
        if self.unanswered:
            _log.warning(
                "the server has not confirmed %d acknowledgements; if these messages are "
                "redelivered, they are recognized as duplicates",
                self.unanswered,
            )

    def close(self, timeout: float) -> None:
        """Stop, then close the client."""
        try:
            self.stop(timeout)
        finally:
            self.client.close(_CLIENT_WAIT, "nack")
