"""What a subscription counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """Counters of one subscription, each written by one thread only, so that none needs a lock."""

    # The consumer's.
    received: int = 0
    redelivered: int = 0
    opened: int = 0
    # The dispatcher's.
    acked: int = 0
    nacked: int = 0
    expired: int = 0
    # The leaser's.
    extended: int = 0
    given_up: int = 0
