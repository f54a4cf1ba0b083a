"""The job of a child, as the parent sends it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from pullstream.rpc.endpoint import BrokerArguments


@dataclass(frozen=True, slots=True)
class Job:
    """One child's work.

    Attributes:
        callback: `module:attribute`.
        subscription: Full name.
        connection: Arguments of the client.
        threads: Largest number of callbacks that run at a time.
        max_messages: Largest number of outstanding messages.
        batch: Largest number of messages in a batch. None: the callback takes single messages.
        max_latency: Seconds that a batch may wait for more messages.
        drain_timeout: Seconds that running callbacks have to finish when the child must stop.
        relayed: Whether the child prints to a pipe that the parent reads. Then printing fails after
            the parent has died.
        label: The beginning of each line that the child prints; empty if there is one child.
    """

    callback: str
    subscription: str
    connection: BrokerArguments
    threads: int
    max_messages: int
    batch: int | None
    max_latency: float
    drain_timeout: float
    relayed: bool = False
    label: str = ""

    def to_json(self) -> str:
        """Return the job on one line, as the control pipe needs it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """Return the job that `to_json` has written."""
        return cls(**json.loads(text))
