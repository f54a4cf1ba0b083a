"""What the user of a listener chose."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ListenSettings:
    """See `SubscriberClient.listen`."""

    newest_only: bool = False
    give_up_after: float | None = 30.0
    poll_timeout: float | None = 360.0
    max_batch: int = 2000
