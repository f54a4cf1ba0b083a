"""A subscription's statistics as a test sets them, and messages as a publisher made them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pullstream.hooks import Hooks, StateChange
from pullstream.message import Message, ResponseBatch
from pullstream.runtime.lifecycle import SubscriptionState
from pullstream.statistics import Statistics
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.streaming.fakes import RecordingSettlementSink

SUBSCRIPTION = "projects/p/subscriptions/orders"
OTHER = "projects/q/subscriptions/orders"


class Source:
    """Statistics of a running subscription, until `close`."""

    def __init__(self, **fields: Any) -> None:
        self._now = Statistics(SubscriptionState.STREAMING, since=1.0, **fields)

    def __call__(self) -> Statistics:
        return self._now

    def set(self, **fields: Any) -> None:
        self._now = replace(self._now, **fields)

    def close(self, hooks: Hooks, subscription: str = SUBSCRIPTION) -> None:
        """End as a subscription does: first the state, then the hook."""
        previous = self._now.state
        self.set(state=SubscriptionState.CLOSED)
        hooks.state_changed(
            subscription, StateChange(SubscriptionState.CLOSED, previous, since=2.0)
        )


def message(
    message_id: str = "1",
    *,
    data: bytes = b"data",
    key: str = "",
    attempt: int = 0,
    **attributes: str,
) -> Message:
    """Return a received message. 0 attempts mean that the subscription does not count them."""
    received = pubsub.ReceivedMessage(
        ack_id=f"ack-{message_id}",
        delivery_attempt=attempt,
        message=pubsub.PubsubMessage(
            data=data, message_id=message_id, ordering_key=key, attributes=attributes
        ),
    )
    response = pubsub.PullResponse(received_messages=[received])
    (message,) = ResponseBatch(RecordingSettlementSink(), 0.0, 1, response).messages()
    return message
