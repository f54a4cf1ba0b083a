"""What a feed may be set to: defaults, limits, and how settings stand on the wire."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from google.protobuf.duration_pb2 import Duration

from emulator.engine.durations import in_words, seconds_of
from emulator.refusals import invalid_argument, too_large, too_small
from emulator.storage.durability import Durability
from protocol.messages import feeds_pb2 as feeds

DEFAULT_CAP_RECORDS = 100_000

DEFAULT_IDEMPOTENCY_WINDOW = 120.0

# Longest durations, in seconds. A key is remembered in memory, and so is a topic at most.
MAX_IDEMPOTENCY_WINDOW = 86_400.0
MAX_TTL = 366 * 86_400.0

DURABILITIES = {
    feeds.MEMORY: Durability.MEMORY,
    feeds.DISK: Durability.DISK,
    feeds.FSYNC: Durability.FSYNC,
}
_ON_WIRE = {durability: value for value, durability in DURABILITIES.items()}


@dataclass(frozen=True)
class Settings:
    """The settings of one feed, complete. 0: no limit of this kind.

    ttl: in milliseconds. idempotency_window: in seconds.
    """

    ttl: int = 0
    cap_records: int = DEFAULT_CAP_RECORDS
    cap_bytes: int = 0
    rejects: bool = False
    idempotency_window: float = DEFAULT_IDEMPOTENCY_WINDOW
    dedupe_node: bool = True

    # Of records, for comparisons without a special case.
    most_records: int = field(init=False)
    most_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "most_records", self.cap_records or sys.maxsize)
        object.__setattr__(self, "most_bytes", self.cap_bytes or sys.maxsize)

    @classmethod
    def of(cls, config: feeds.FeedConfig) -> Settings:
        """Those that a request asks for.

        Raises:
            InvalidArgument: a value is out of its bounds.
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
        """All of it, as it stands on the wire; the class is the topic's to know."""
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


# Of a feed that nobody has put.
DEFAULTS = Settings()


def _seconds(name: str, duration: Duration, maximum: float) -> float:
    seconds = seconds_of(duration)
    if seconds < 0:
        raise too_small(name, in_words(seconds), "0")
    if seconds > maximum:
        raise too_large(name, in_words(seconds), in_words(maximum))
    return seconds
