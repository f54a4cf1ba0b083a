"""What the user chose for a follower; see `SubscriberClient.follow`."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides between pulling and the stream.

    live_buffer, live_bytes: records and bytes that the stream may be ahead of the handler.
    patience: seconds without anything from a stream after which it is taken for dead.
    give_up_after: seconds without an answer after which all ends. None: it goes on trying.
    """

    live_buffer: int = 500
    live_bytes: int = 32 * 1024 * 1024
    patience: float = 30.0
    give_up_after: float | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """What else there is to know.

    checkpoint_every, checkpoint_seconds: the position is kept after so many records, or so many
        seconds after one was handled.
    create: make the topic if it does not exist.
    """

    topic: str
    filter: str = ""
    exclude_node: str = ""
    checkpoint_every: int = 1000
    checkpoint_seconds: float = 2.0
    create: bool = False
    rules: Rules = field(default_factory=Rules)
