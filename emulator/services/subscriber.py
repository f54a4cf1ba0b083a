"""google.pubsub.v1.Subscriber: subscriptions, Pull, Acknowledge, ModifyAckDeadline."""

from __future__ import annotations

import asyncio

from google.protobuf.empty_pb2 import Empty

from emulator.engine import Consumer, Delivery, Engine
from emulator.engine.subscription import MAX_PER_RESPONSE, Subscription
from protocol import errors
from protocol.messages import encoded_pb2 as encoded
from protocol.messages import pubsub_pb2 as pubsub

from .delivery import received_messages
from .handlers import Context
from .streaming_pull import StreamingPull

# A waiting Pull is answered this much before the caller's deadline, in seconds, so that an empty
# answer arrives before the deadline does. Measured on loaded machines: 100 ms is safe, 20 ms is
# not.
ANSWER_MARGIN = 0.1

# Longest wait of a Pull whose caller set no deadline, in seconds.
MAX_PULL_WAIT = 90.0

INVALID_ACK_IDS = (
    "Some acknowledgement ids in the request were invalid. This could be because the "
    "acknowledgement ids have expired or the acknowledgement ids were malformed."
)


class SubscriberService:
    """Subscriptions and delivery."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.create_subscription = engine.create_subscription
        self.update_subscription = engine.update_subscription
        self.list_subscriptions = engine.list_subscriptions

    def get_subscription(self, request: pubsub.GetSubscriptionRequest) -> pubsub.Subscription:
        return self._engine.get_subscription(request.subscription)

    def delete_subscription(self, request: pubsub.DeleteSubscriptionRequest) -> Empty:
        self._engine.delete_subscription(request.subscription)
        return Empty()

    def modify_push_config(self, request: pubsub.ModifyPushConfigRequest) -> Empty:
        self._engine.modify_push_config(request)
        return Empty()

    def acknowledge(self, request: pubsub.AcknowledgeRequest) -> Empty:
        stale = self._engine.acknowledge(request.subscription, list(request.ack_ids))
        self._refuse_stale(request.subscription, stale)
        return Empty()

    def modify_ack_deadline(self, request: pubsub.ModifyAckDeadlineRequest) -> Empty:
        stale = self._engine.modify_ack_deadline(
            request.subscription, list(request.ack_ids), request.ack_deadline_seconds
        )
        self._refuse_stale(request.subscription, stale)
        return Empty()

    def _refuse_stale(self, subscription: str, stale: list[str]) -> None:
        """With exactly-once delivery a stale ack id is an error; otherwise it is nothing."""
        config = self._engine.get_subscription(subscription)
        if not stale or not config.enable_exactly_once_delivery:
            return
        raise errors.InvalidArgument(
            INVALID_ACK_IDS,
            reason="EXACTLY_ONCE_ACKID_FAILURE",
            metadata=dict.fromkeys(stale, "PERMANENT_FAILURE_INVALID_ACK_ID"),
        )

    async def streaming_pull(self, context: Context) -> None:
        await StreamingPull(self._engine, context).run()

    async def pull(
        self, request: pubsub.PullRequest, context: Context
    ) -> encoded.EncodedPullResponse:
        if request.max_messages <= 0:
            raise errors.InvalidArgument(
                "You have passed an invalid argument to the service (argument=max_messages)."
            )
        config = self._engine.get_subscription(request.subscription)
        woken = asyncio.Event()
        consumer = Consumer(ack_deadline=config.ack_deadline_seconds, wake=woken.set)
        subscription = self._engine.join(
            request.subscription, consumer, waits=not request.return_immediately
        )
        limit = min(request.max_messages, MAX_PER_RESPONSE)
        taken = []
        try:
            taken = self._engine.take(subscription, consumer, limit)
            if not taken and not request.return_immediately:
                taken = await self._wait(subscription, consumer, woken, limit, context)
        finally:
            # Nothing taken, or cancelled on the way: nothing may be delivered to this call any
            # more.
            subscription.leave(consumer, give_back=not taken)
        if taken:
            # A caller that went away before the answer reached it will never acknowledge.
            context.add_done_callback(
                # The stubs ask for a class of theirs where any callable will do.
                lambda call: subscription.leave(consumer) if call.cancelled() else None  # type: ignore[arg-type]
            )
        return encoded.EncodedPullResponse(
            received_messages=received_messages(taken, subscription.config)
        )

    async def _wait(
        self,
        subscription: Subscription,
        consumer: Consumer,
        woken: asyncio.Event,
        limit: int,
        context: Context,
    ) -> list[tuple[str, Delivery]]:
        remaining = context.time_remaining()
        if remaining is None:
            remaining = MAX_PULL_WAIT
        wait = min(remaining - min(ANSWER_MARGIN, remaining / 10), MAX_PULL_WAIT)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        while (left := deadline - loop.time()) > 0:
            try:
                # gRPC deadlines run on real time, whatever clock the broker is on.
                await asyncio.wait_for(woken.wait(), left)
            except asyncio.TimeoutError:
                break
            woken.clear()
            if consumer.closed is not None:
                raise consumer.closed
            taken = self._engine.take(subscription, consumer, limit)
            if taken:
                return taken
        return []
