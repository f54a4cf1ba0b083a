"""What a new process does with the segments of an earlier one."""

from __future__ import annotations

from .feed import Feed
from .intake import Intake, forget
from .spool import Spool


class Recovery:
    """The segments that a process found when it began, in two steps around the first message.

    Those up to `planned` are kept: their ids are put into the ledger before anything is received,
    so that a redelivery is known for one. Those beyond are deleted: nobody has planned them whom
    this process works for, and who did has not had them acknowledged.

    Raises:
        SpoolError: they cannot be deleted.
    """

    def __init__(self, spool: Spool, intake: Intake, planned: int) -> None:
        self._intake = intake
        found = [spool.get(seq) for seq in spool.numbers]
        self._kept = [(segment, segment.leases()) for segment in found if segment.seq <= planned]
        self._others = [(segment, segment.leases()) for segment in found if segment.seq > planned]
        spool.discard_after(planned)
        with intake.ledger() as ledger:
            for segment, held in self._kept:
                ledger.restore(segment.seq, list(held))

    def adopt(self, feed: Feed) -> None:
        """Go on with the leases of what is kept, and give back the rest.

        The leases may have ended long ago, or belong to somebody else by now: then this changes
        nothing, and the messages come again.
        """
        for segment, held in self._kept:
            messages = feed.adopt(list(held.values()), segment.size)
            with self._intake.ledger() as ledger:
                outdated = ledger.adopted(segment.seq, dict(zip(held, messages, strict=True)))
            forget(outdated)
        for segment, held in self._others:
            for message in feed.adopt(list(held.values()), segment.size):
                message.nack()
