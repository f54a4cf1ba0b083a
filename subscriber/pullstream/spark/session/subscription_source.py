"""The subscription of an ingestion, from its opening to its end."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pullstream.client import SubscriberClient, subscribe_with
from pullstream.futures import StreamingPullFuture
from pullstream.message import Message
from pullstream.runtime.lifecycle import SubscriptionState
from pullstream.streaming.settings import Batching, StreamingSettings

from .message_buffer import MessageBuffer
from .settings import IngestSettings

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

    Only the session's thread calls it. It receives messages from its creation. It settles nothing,
    except that `stop` returns the messages that are neither acknowledged nor in a segment.

    Args:
        client: The client, which `close` closes.
        settings: The subscription and its limits.
        buffer: The message buffer.
        give_up_after: Seconds without a working stream after which the subscription fails. None:
            never.
    """

    def __init__(
        self,
        client: SubscriberClient,
        settings: IngestSettings,
        buffer: MessageBuffer,
        *,
        give_up_after: float | None,
    ) -> None:
        self._client = client
        limits = settings.flow_control
        self._future: StreamingPullFuture = subscribe_with(
            client,
            settings.subscription,
            buffer,
            StreamingSettings(
                limits,
                give_up_after=give_up_after,
                hooks=(buffer,),
                batching=Batching(min(_LIST_LENGTH, limits.max_messages), _LIST_WAIT),
                # Rows are made from the whole list at once.
                unparsed=True,
            ),
            # One worker, because it only hands messages over, and so lists arrive in the stream's
            # order.
            max_workers=1,
        )

    @property
    def unanswered(self) -> int:
        """Acknowledgements that the server has not confirmed."""
        return self._future.statistics().unanswered

    def adopt(self, ack_ids: Sequence[str], size: int) -> list[Message]:
        """Take over leases of an earlier process; see `StreamingPullFuture.adopt`."""
        return self._future.adopt(ack_ids, size)

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
            self._client.close(_CLIENT_WAIT, "nack")
