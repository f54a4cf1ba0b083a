"""How much a batch may have."""

from __future__ import annotations

from dataclasses import dataclass

from .settings import IngestSettings


@dataclass(frozen=True, slots=True)
class Limit:
    """What the caller wants at most; None: as the settings say."""

    messages: int | None = None
    bytes: int | None = None

    def within(self, settings: IngestSettings) -> tuple[int, int]:
        """The smaller limits of the two: messages and bytes."""
        messages, size = settings.max_messages_per_trigger, settings.max_bytes_per_trigger
        return min(self.messages or messages, messages), min(self.bytes or size, size)
