"""Settings of a follower; see `SubscriberClient.follow`."""

from __future__ import annotations

from dataclasses import dataclass, field

# A stream that is silent for this many seconds counts as dead. The server is asked for a sign twice
# as often.
STREAM_SILENCE_LIMIT = 30.0


@dataclass(frozen=True, slots=True)
class FollowRules:
    """Settings that decide between reads and the stream.

    Attributes:
        live_buffer: The most records that the stream may be ahead of the handler.
        live_bytes: The most bytes that the stream may be ahead of the handler.
        silence_limit: A stream that is silent for this many seconds counts as dead.
        give_up_after: The follower ends after this many seconds without an answer. None: it retries
            without a limit.
    """

    live_buffer: int = 500
    live_bytes: int = 32 * 1024 * 1024
    silence_limit: float = field(default_factory=lambda: STREAM_SILENCE_LIMIT)
    give_up_after: float | None = None


@dataclass(frozen=True, slots=True)
class FollowSettings:
    """All settings of a follower.

    Attributes:
        topic: The full name of the topic.
        filter: Read only records that match this filter. Empty: all records.
        exclude_node: Leave out the records of this node. Empty: none.
        checkpoint_every: Save the position after this many records.
        checkpoint_seconds: Save the position this many seconds after a record was handled.
        create: Create the topic if it does not exist.
        rules: The settings that decide between reads and the stream.
    """

    topic: str
    filter: str = ""
    exclude_node: str = ""
    checkpoint_every: int = 1000
    checkpoint_seconds: float = 2.0
    create: bool = False
    rules: FollowRules = field(default_factory=FollowRules)
