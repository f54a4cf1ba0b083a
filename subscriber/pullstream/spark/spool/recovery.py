"""Recovery of the segments that an earlier process has left."""

from __future__ import annotations

from pullstream.message import return_messages
from pullstream.spark.session.message_buffer import MessageBuffer, forget
from pullstream.spark.session.subscription_source import SubscriptionSource

from .spool import Spool


class Recovery:
    """The segments that a process finds at its start, handled before and after opening.

    Segments up to `planned` are kept. Their ids are added to the ledger before any message is
    received, so that redeliveries are recognized. Segments after `planned` are deleted. No current
    checkpoint refers to them, and their messages were never acknowledged, so Pub/Sub redelivers
    them.

    Args:
        spool: The spool, which is open.
        buffer: The message buffer, whose ledger gets the kept segments.
        planned: Number of the last segment that the engine may read again.

    Raises:
        SpoolError: The segments cannot be deleted.
    """

    def __init__(self, spool: Spool, buffer: MessageBuffer, planned: int) -> None:
        self._buffer = buffer
        found = [spool.get(seq) for seq in spool.numbers]
        self._kept = [(segment, segment.leases()) for segment in found if segment.seq <= planned]
        self._others = [(segment, segment.leases()) for segment in found if segment.seq > planned]
        spool.discard_after(planned)
        with buffer.ledger() as ledger:
            for segment, held in self._kept:
                ledger.restore(segment.seq, list(held))

    def adopt(self, feed: SubscriptionSource) -> None:
        """Take over the leases of the kept segments, and return the other messages.

        The leases may have expired, or belong to another subscriber by now. Then this has no
        effect, and the messages are redelivered.
        """
        for segment, held in self._kept:
            messages = feed.adopt(list(held.values()), segment.size)
            with self._buffer.ledger() as ledger:
                outdated = ledger.adopted(segment.seq, dict(zip(held, messages, strict=True)))
            forget(outdated)
        for segment, held in self._others:
            return_messages(feed.adopt(list(held.values()), segment.size))
