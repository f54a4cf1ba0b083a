"""What the user chooses for a subscription."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from subscriber.flow_control import FlowControl
from subscriber.hooks import Hooks

ReleaseAfter = Literal["callback", "ack"]


@dataclass(frozen=True)
class Batching:
    """How `subscribe_batch` gathers messages: so many, or for so many seconds."""

    max_messages: int
    max_latency: float


@dataclass(frozen=True)
class Settings:
    """What the user chose for a subscription; see `SubscriberClient.subscribe`.

    batching: None: the callback takes one message at a time.
    unparsed: leave the messages as they come until they are looked at (UnparsedMessages).
    """

    limits: FlowControl
    limit_server: bool = True
    await_callbacks: bool = False
    release_after: ReleaseAfter = "callback"
    give_up_after: float | None = None
    hooks: Sequence[Hooks] = ()
    batching: Batching | None = None
    unparsed: bool = False
