"""Settings of a feed: defaults, limits, and conversion to and from the wire format."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from google.protobuf.duration_pb2 import Duration

from pullstream_emulator.engine.settings.durability import Durability
from pullstream_emulator.engine.settings.durations import in_words, seconds_of
from pullstream_emulator.error_texts import invalid_argument, too_large, too_small
from pullstream_protocol.messages import feeds_pb2 as feeds

DEFAULT_CAP_RECORDS = 100_000

DEFAULT_IDEMPOTENCY_WINDOW = 120.0

# Longest durations, in seconds. Keys are kept in memory, and so may be a whole topic.
MAX_IDEMPOTENCY_WINDOW = 86_400.0
MAX_TTL = 366 * 86_400.0

DURABILITIES = {
    feeds.MEMORY: Durability.MEMORY,
    feeds.DISK: Durability.DISK,
    feeds.FSYNC: Durability.FSYNC,
}
_ON_WIRE = {durability: value for value, durability in DURABILITIES.items()}


@dataclass(frozen=True)
class FeedSettings:
    """The complete settings of one feed. A limit of 0 means no limit.

    Attributes:
        ttl: Age at which records expire, in milliseconds.
        cap_records: Maximum number of records in the window.
        cap_bytes: Maximum size of the window in bytes.
        rejects: Refuse appends above the caps; otherwise the oldest records are removed.
        idempotency_window: How long idempotency keys are remembered, in seconds.
        dedupe_node: Readers may exclude the records of one node.
        most_records: `cap_records`, or a huge number for no limit.
        most_bytes: `cap_bytes`, or a huge number for no limit.
    """

    ttl: int = 0
    cap_records: int = DEFAULT_CAP_RECORDS
    cap_bytes: int = 0
    rejects: bool = False
    idempotency_window: float = DEFAULT_IDEMPOTENCY_WINDOW
    dedupe_node: bool = True

    # Derived, so that comparisons need no special case for "no limit".
    most_records: int = field(init=False)
    most_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "most_records", self.cap_records or sys.maxsize)
        object.__setattr__(self, "most_bytes", self.cap_bytes or sys.maxsize)

    @classmethod
    def from_config(cls, config: feeds.FeedConfig) -> FeedSettings:
        """Return the settings that a request asks for.

        Raises:
            InvalidArgument: A value is out of range.
        """
        for name in ("cap_records", "cap_bytes"):
            if getattr(config, name) < 0:
                raise too_small(f"config.{name}", getattr(config, name), 0)
        if config.discard not in feeds.Discard.values():
            raise invalid_argument("config.discard")
        if config.durability not in feeds.Durability.values():
            raise invalid_argument("config.durability")
        window = DEFAULT_IDEMPOTENCY_WINDOW
        if config.HasField("idempotency_window"):
            window = _seconds(
                "config.idempotency_window", config.idempotency_window, MAX_IDEMPOTENCY_WINDOW
            )
        return cls(
            ttl=round(_seconds("config.ttl", config.ttl, MAX_TTL) * 1000),
            cap_records=config.cap_records,
            cap_bytes=config.cap_bytes,
            rejects=config.discard == feeds.REJECT,
            idempotency_window=window,
            dedupe_node=not config.HasField("dedupe_node") or config.dedupe_node,
        )

    def config(self, durability: Durability | None = None) -> feeds.FeedConfig:
        """Return the wire format. The topic knows the durability class, so the caller passes it."""
        config = feeds.FeedConfig(
            cap_records=self.cap_records,
            cap_bytes=self.cap_bytes,
            discard=feeds.REJECT if self.rejects else feeds.OLD,
            durability=feeds.DURABILITY_UNSPECIFIED if durability is None else _ON_WIRE[durability],
            dedupe_node=self.dedupe_node,
        )
        config.ttl.FromMilliseconds(self.ttl)
        config.idempotency_window.FromMilliseconds(round(self.idempotency_window * 1000))
        return config


# Settings of a feed that was not created by PutFeed.
DEFAULTS = FeedSettings()


def _seconds(name: str, duration: Duration, maximum: float) -> float:
    seconds = seconds_of(duration)
    if seconds < 0:
        raise too_small(name, in_words(seconds), "0")
    if seconds > maximum:
        raise too_large(name, in_words(seconds), in_words(maximum))
    return seconds
