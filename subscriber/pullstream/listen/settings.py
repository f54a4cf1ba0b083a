"""Settings of a listener."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ListenSettings:
    """The user's settings; see `SubscriberClient.listen` for their meaning."""

    newest_only: bool = False
    give_up_after: float | None = 30.0
    poll_timeout: float | None = 360.0
    max_batch: int = 2000
