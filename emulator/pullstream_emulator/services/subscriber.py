"""google.pubsub.v1.Subscriber: subscriptions, snapshots, seeks, and unary delivery."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from google.protobuf.empty_pb2 import Empty

from pullstream_emulator.engine import Consumer, Delivery, Engine
from pullstream_emulator.engine.delivery.subscription import MAX_PER_RESPONSE, Subscription
from pullstream_emulator.error_texts import invalid_argument, too_large
from pullstream_protocol import errors
from pullstream_protocol.long_poll import longest_wait
from pullstream_protocol.messages import encoded_pb2 as encoded
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import PULLS, SUBSCRIBER, UNSEEN

from .context import Context, client_name
from .deliveries import add_deliveries
from .refused_ack_ids import Request, verdict
from .reply_first import ReplyFirst
from .rpc_methods import (
    RpcMethod,
    StreamMethod,
    UnaryMethod,
    WritingMethod,
    metadata_of,
    on_field,
)
from .streaming_pull import StreamingPull

# Longest wait of a Pull call without a deadline, in seconds.
MAX_PULL_WAIT = 90.0

MAX_ACK_REQUEST_BYTES = 512 * 1024


class SubscriberService:
    """Subscriptions and delivery.

    Args:
        engine: The engine that has the subscriptions.
        reply_first: Lets the answer to a publish go before the deliveries.
        max_pull_messages: The most messages in the answer to a Pull.
    """

    service = SUBSCRIBER

    def __init__(
        self, engine: Engine, reply_first: ReplyFirst, max_pull_messages: int = MAX_PER_RESPONSE
    ) -> None:
        self._engine = engine
        self._reply_first = reply_first
        self._max_pull_messages = max_pull_messages

    def rpc_methods(self) -> Mapping[str, RpcMethod]:
        """Return the RPCs by name; Pull may wait, and StreamingPull is a bidirectional stream."""
        return {
            "CreateSubscription": UnaryMethod(self._engine.create_subscription),
            "GetSubscription": on_field("subscription", self._engine.get_subscription),
            "UpdateSubscription": UnaryMethod(self._engine.update_subscription),
            "ListSubscriptions": UnaryMethod(self._engine.list_subscriptions),
            "DeleteSubscription": on_field("subscription", self._engine.delete_subscription),
            "ModifyAckDeadline": UnaryMethod(self.modify_ack_deadline, keywords=metadata_of),
            "Acknowledge": UnaryMethod(self.acknowledge),
            "Pull": WritingMethod(self.pull),
            "StreamingPull": StreamMethod(self.streaming_pull),
            "ModifyPushConfig": UnaryMethod(self.modify_push_config),
            "GetSnapshot": on_field("snapshot", self._engine.get_snapshot),
            "ListSnapshots": UnaryMethod(self._engine.list_snapshots),
            "CreateSnapshot": UnaryMethod(self._engine.create_snapshot),
            "UpdateSnapshot": UnaryMethod(self._engine.update_snapshot),
            "DeleteSnapshot": on_field("snapshot", self._engine.delete_snapshot),
            "Seek": UnaryMethod(self._engine.seek),
        }

    def modify_push_config(self, request: pubsub.ModifyPushConfigRequest) -> Empty:
        """Change where messages are pushed; without an endpoint, they are pulled."""
        self._engine.modify_push_config(request)
        return Empty()

    def acknowledge(self, request: pubsub.AcknowledgeRequest) -> Empty:
        """Acknowledge messages; with exactly-once delivery, report refused ack IDs as an error."""
        _check_size(request)
        ack_ids = list(request.ack_ids)
        refusal = _Refusal(ack_ids, "acknowledge")
        self._engine.acknowledge(request.subscription, ack_ids, refusal.decide)
        return refusal.answer()

    def modify_ack_deadline(
        self, request: pubsub.ModifyAckDeadlineRequest, *, metadata: Mapping[str, str | bytes]
    ) -> Empty:
        """Extend leases, or nack with 0 seconds; report refused ack IDs as `acknowledge` does."""
        _check_size(request)
        ack_ids, seconds = list(request.ack_ids), request.ack_deadline_seconds
        refusal = _Refusal(ack_ids, "nack" if seconds == 0 else "extend")
        self._engine.modify_ack_deadline(
            request.subscription, ack_ids, seconds, refusal.decide, unseen=UNSEEN in metadata
        )
        return refusal.answer()

    async def streaming_pull(self, context: Context) -> None:
        """Deliver messages on a stream until the client or the subscription ends it."""
        await StreamingPull(self._engine, context, self._reply_first).run()

    async def pull(self, request: pubsub.PullRequest, context: Context) -> None:
        """Lease messages to the caller; wait for the first one almost until its deadline."""
        if request.max_messages <= 0:
            raise invalid_argument("max_messages")
        config = self._engine.get_subscription(request.subscription)
        woken = asyncio.Event()
        consumer = Consumer(
            ack_deadline=config.ack_deadline_seconds,
            wake=woken.set,
            is_pull=True,
            client=client_name(context),
        )
        subscription = self._engine.join(request.subscription, consumer)
        limit = min(request.max_messages, self._max_pull_messages)
        answered = False
        try:
            taken = self._engine.lease(subscription, consumer, limit)
            if not taken and not request.return_immediately:
                self._engine.pulls.check_room(subscription)
                taken = await self._wait(subscription, consumer, woken, limit, context)
            if not taken:
                # The response may take long to send. New messages must go to other consumers.
                self._engine.leave(subscription, consumer)
            response = encoded.EncodedPullResponse()
            add_deliveries(response, taken, subscription.config)
            # Raises if the caller has left.
            await context.write(response)
            answered = True
        finally:
            # An answered call keeps its leases. Otherwise its messages go to other consumers.
            self._engine.leave(subscription, consumer, give_back=() if answered else None)

    async def _wait(
        self,
        subscription: Subscription,
        consumer: Consumer,
        woken: asyncio.Event,
        limit: int,
        context: Context,
    ) -> Sequence[Delivery]:
        wait = longest_wait(context, MAX_PULL_WAIT)
        waiting = True

        def give_up() -> None:
            nonlocal waiting
            waiting = False
            woken.set()

        # gRPC deadlines use real time, even if the broker has another clock. Do not use
        # asyncio.wait_for: before Python 3.12 it loses a cancellation that arrives at the same time
        # as the result.
        timer = asyncio.get_running_loop().call_later(wait, give_up)
        try:
            taken: Sequence[Delivery] = ()
            while waiting and not taken:
                await woken.wait()
                woken.clear()
                if consumer.closed is not None:
                    raise consumer.closed
                taken = self._engine.lease(subscription, consumer, limit)
            return taken
        finally:
            timer.cancel()


class _Refusal:
    """The error of a request, if some of its ack IDs are refused.

    Args:
        ack_ids: The ack IDs of the request.
        request: The kind of the request.
    """

    def __init__(self, ack_ids: Sequence[str], request: Request) -> None:
        self._ack_ids = ack_ids
        self._request = request
        self._error: errors.RpcError | None = None

    def decide(self, refused: Mapping[str, str]) -> bool:
        """Choose the error for these refused ack IDs; return whether the others take effect."""
        self._error, takes_effect = verdict(self._ack_ids, refused, self._request)
        return takes_effect

    def answer(self) -> Empty:
        """Return the response, or raise the error."""
        if self._error is not None:
            raise self._error
        return Empty()


def _check_size(request: pubsub.AcknowledgeRequest | pubsub.ModifyAckDeadlineRequest) -> None:
    size = request.ByteSize()
    if size > MAX_ACK_REQUEST_BYTES:
        raise too_large("request_size", size, MAX_ACK_REQUEST_BYTES)


class PullsService:
    """Statistics and limits of Pull calls (engine.PullCalls).

    The Pull call itself is part of SubscriberService.
    """

    service = PULLS

    def __init__(self, engine: Engine) -> None:
        self._pulls = engine.pulls

    def rpc_methods(self) -> Mapping[str, RpcMethod]:
        """Return the RPCs by name, without Pull, which is in SubscriberService."""
        return {
            "GetSubscriptionState": on_field("subscription", self._pulls.state),
            "SetMaxWaiting": UnaryMethod(self._pulls.set_max_waiting),
        }
