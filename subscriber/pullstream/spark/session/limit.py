"""Limits of one batch."""

from __future__ import annotations

from dataclasses import dataclass

from .settings import IngestSettings


@dataclass(frozen=True, slots=True)
class Limit:
    """Limits that the caller sets for one batch.

    Attributes:
        messages: Maximum number of messages. None: the limit of the settings.
        bytes: Maximum size in bytes. None: the limit of the settings.
    """

    messages: int | None = None
    bytes: int | None = None

    def within(self, settings: IngestSettings) -> tuple[int, int]:
        """Return the messages and bytes that both these limits and the settings allow."""
        messages, size = settings.max_messages_per_trigger, settings.max_bytes_per_trigger
        return min(self.messages or messages, messages), min(self.bytes or size, size)
