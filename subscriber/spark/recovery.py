"""What a new process does with the segments of an earlier one."""

from __future__ import annotations

from .feed import Feed
from .intake import Intake, forget
from .spool import Spool


class Recovery:
    """The segments that a process found when it began, in two steps around the first message.

    Those up to `planned` are kept: their ids are put into the ledger before anything is received,
    so that a redelivery is known for one. Those beyond were never planned, and never acknowledged.
    """

    def __init__(self, spool: Spool, intake: Intake, planned: int) -> None:
        self._spool = spool
        self._intake = intake
        self._planned = planned
        self._leases = {seq: spool.get(seq).leases() for seq in spool.numbers}
        with intake.ledger() as ledger:
            for seq, held in self._leases.items():
                if seq <= planned:
                    ledger.restore(seq, list(held))

    def adopt(self, feed: Feed) -> None:
        """Go on with the leases of what is kept, and give back the rest.

        The leases may have ended long ago, or belong to somebody else by now: then this changes
        nothing, and the messages come again.
        """
        for seq, held in self._leases.items():
            messages = feed.adopt(list(held.values()), self._spool.get(seq).size)
            if seq <= self._planned:
                with self._intake.ledger() as ledger:
                    outdated = ledger.adopted(seq, dict(zip(held, messages, strict=True)))
                forget(outdated)
            else:
                self._spool.remove(seq)
                for message in messages:
                    message.nack()
