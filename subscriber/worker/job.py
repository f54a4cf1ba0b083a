"""What a child is to do, as the parent hands it over."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Job:
    """One child's work.

    callback: `module:attribute`.
    subscription: full name.
    endpoint: `host:port`; None: the environment's, or Google Cloud.
    threads: callbacks at a time.
    max_messages: messages received and unfinished at a time.
    batch: most messages of a batch; None: the callback takes single messages.
    max_latency: seconds for which a batch may wait for more messages.
    drain_timeout: seconds that running callbacks have to end when the child is to stop.
    relayed: whether the parent passes on what the child prints, so that it has no other way out.
    """

    callback: str
    subscription: str
    endpoint: str | None
    threads: int
    max_messages: int
    batch: int | None
    max_latency: float
    drain_timeout: float
    relayed: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        return cls(**json.loads(text))
