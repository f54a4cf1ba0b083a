"""Settings of a subscription."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pullstream.flow_control import FlowControl
from pullstream.hooks import Hooks
from pullstream.message import Reject

ReleaseAfter = Literal["callback", "ack"]


@dataclass(frozen=True)
class Batching:
    """Limits of the lists that `subscribe_batch` gathers.

    Attributes:
        max_messages: Largest number of messages in a list.
        max_latency: Seconds that a list may wait for more messages.
        columns: Whether the callback takes MessageColumns.
    """

    max_messages: int
    max_latency: float
    columns: bool = False


@dataclass(frozen=True)
class StreamingSettings:
    """The user's settings for a subscription; see `SubscriberClient.subscribe`.

    Attributes:
        limits: Flow control.
        limit_server: Whether the server enforces the limits, too.
        await_callbacks: Whether a shutdown waits for running callbacks by default.
        release_after: When the next message of an ordering key may begin: after the "callback" of
            the previous message, or after its "ack".
        give_up_after: Seconds without a working stream after which the subscription fails. None:
            never.
        streams: Number of streams. Flow control counts the messages of all of them together.
        hooks: Hooks to call.
        batching: Limits of lists. None: the callback takes one message at a time.
        reject: Publishes a message to a dead-letter topic; see ResponseBatch. None: impossible.
    """

    limits: FlowControl
    limit_server: bool = True
    await_callbacks: bool = False
    release_after: ReleaseAfter = "callback"
    give_up_after: float | None = None
    streams: int = 1
    hooks: Sequence[Hooks] = ()
    batching: Batching | None = None
    reject: Reject | None = None
