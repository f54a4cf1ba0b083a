"""google.pubsub.v1.Subscriber: subscriptions, snapshots, seeks, and unary delivery."""

from __future__ import annotations

import asyncio

from google.protobuf.empty_pb2 import Empty

from emulator.engine import Consumer, Delivery, Engine
from emulator.engine.subscription import MAX_PER_RESPONSE, Subscription
from emulator.refusals import invalid_argument, too_large
from protocol import errors
from protocol.messages import encoded_pb2 as encoded
from protocol.messages import pubsub_pb2 as pubsub
from protocol.waiting import longest_wait

from .context import Context
from .delivery import add_deliveries
from .head_start import HeadStart
from .streaming_pull import StreamingPull

# Longest wait of a Pull whose caller set no deadline, in seconds.
MAX_PULL_WAIT = 90.0

MAX_ACK_REQUEST_BYTES = 512 * 1024

# Most ack ids that an answer can name: they travel in a trailer, and clients refuse more than 8 KiB
# of headers.
MAX_LISTED = 100

INVALID_ACK_IDS = (
    "Some acknowledgement ids in the request were invalid. This could be because the "
    "acknowledgement ids have expired or the acknowledgement ids were malformed."
)


class SubscriberService:
    """Subscriptions and delivery."""

    def __init__(self, engine: Engine, head_start: HeadStart) -> None:
        self._engine = engine
        self._head_start = head_start
        self.create_subscription = engine.create_subscription
        self.update_subscription = engine.update_subscription
        self.list_subscriptions = engine.list_subscriptions
        self.create_snapshot = engine.create_snapshot
        self.update_snapshot = engine.update_snapshot
        self.list_snapshots = engine.list_snapshots
        self.seek = engine.seek

    def get_subscription(self, request: pubsub.GetSubscriptionRequest) -> pubsub.Subscription:
        return self._engine.get_subscription(request.subscription)

    def delete_subscription(self, request: pubsub.DeleteSubscriptionRequest) -> Empty:
        self._engine.delete_subscription(request.subscription)
        return Empty()

    def modify_push_config(self, request: pubsub.ModifyPushConfigRequest) -> Empty:
        self._engine.modify_push_config(request)
        return Empty()

    def get_snapshot(self, request: pubsub.GetSnapshotRequest) -> pubsub.Snapshot:
        return self._engine.get_snapshot(request.snapshot)

    def delete_snapshot(self, request: pubsub.DeleteSnapshotRequest) -> Empty:
        self._engine.delete_snapshot(request.snapshot)
        return Empty()

    def acknowledge(self, request: pubsub.AcknowledgeRequest) -> Empty:
        _check_size(request)
        name, ack_ids = request.subscription, list(request.ack_ids)
        self._check_listable(name, ack_ids, acknowledging=True)
        self._refuse(name, self._engine.acknowledge(name, ack_ids))
        return Empty()

    def modify_ack_deadline(self, request: pubsub.ModifyAckDeadlineRequest) -> Empty:
        _check_size(request)
        name, ack_ids = request.subscription, list(request.ack_ids)
        self._check_listable(name, ack_ids, acknowledging=False)
        seconds = request.ack_deadline_seconds
        self._refuse(name, self._engine.modify_ack_deadline(name, ack_ids, seconds))
        return Empty()

    def _check_listable(self, name: str, ack_ids: list[str], *, acknowledging: bool) -> None:
        """Refuse a request with more bad ids than an answer can name, before it has any effect.

        Carried out, it would leave the caller in the dark about which of its ids were.
        """
        if len(ack_ids) <= MAX_LISTED or not self._is_exactly_once(name):
            return
        refused = len(self._engine.refusals(name, ack_ids, acknowledging=acknowledging))
        if refused > MAX_LISTED:
            raise errors.InvalidArgument(
                f"{refused} of the {len(ack_ids)} acknowledgement ids in the request were invalid. "
                f"More than {MAX_LISTED} cannot be listed, so the request had no effect."
            )

    def _refuse(self, name: str, refused: dict[str, str]) -> None:
        """With exactly-once delivery a refused ack id is an error; otherwise it is nothing.

        The status is the same for ids that may be tried again: official clients repeat a whole
        request after UNAVAILABLE, and would find that the ids beside them are acknowledged already.
        """
        if refused and self._is_exactly_once(name):
            raise errors.InvalidArgument(
                INVALID_ACK_IDS, reason="EXACTLY_ONCE_ACKID_FAILURE", metadata=refused
            )

    def _is_exactly_once(self, name: str) -> bool:
        return self._engine.get_subscription(name).enable_exactly_once_delivery

    async def streaming_pull(self, context: Context) -> None:
        await StreamingPull(self._engine, context, self._head_start).run()

    async def pull(self, request: pubsub.PullRequest, context: Context) -> None:
        if request.max_messages <= 0:
            raise invalid_argument("max_messages")
        config = self._engine.get_subscription(request.subscription)
        woken = asyncio.Event()
        consumer = Consumer(ack_deadline=config.ack_deadline_seconds, wake=woken.set, is_pull=True)
        subscription = self._engine.join(request.subscription, consumer)
        limit = min(request.max_messages, MAX_PER_RESPONSE)
        answered = False
        try:
            taken = self._engine.take(subscription, consumer, limit)
            if not taken and not request.return_immediately:
                self._engine.pulls.check_room(subscription)
                taken = await self._wait(subscription, consumer, woken, limit, context)
            if not taken:
                # However long the answer takes to leave: what comes from now on is for others.
                self._engine.leave(subscription, consumer)
            response = encoded.EncodedPullResponse()
            add_deliveries(response, taken, subscription.config)
            # Fails when the caller is gone.
            await context.write(response)
            answered = True
        finally:
            # An answered call keeps its leases. Whatever else happened, what it took is somebody
            # else's now.
            self._engine.leave(subscription, consumer, give_back=not answered)

    async def _wait(
        self,
        subscription: Subscription,
        consumer: Consumer,
        woken: asyncio.Event,
        limit: int,
        context: Context,
    ) -> list[tuple[str, Delivery]]:
        wait = longest_wait(context, MAX_PULL_WAIT)
        waiting = True

        def give_up() -> None:
            nonlocal waiting
            waiting = False
            woken.set()

        # gRPC deadlines run on real time, whatever clock the broker is on. No asyncio.wait_for:
        # before Python 3.12 it loses a cancellation that comes together with what it waits for.
        timer = asyncio.get_running_loop().call_later(wait, give_up)
        try:
            taken: list[tuple[str, Delivery]] = []
            while waiting and not taken:
                await woken.wait()
                woken.clear()
                if consumer.closed is not None:
                    raise consumer.closed
                taken = self._engine.take(subscription, consumer, limit)
            return taken
        finally:
            timer.cancel()


def _check_size(request: pubsub.AcknowledgeRequest | pubsub.ModifyAckDeadlineRequest) -> None:
    size = request.ByteSize()
    if size > MAX_ACK_REQUEST_BYTES:
        raise too_large("request_size", size, MAX_ACK_REQUEST_BYTES)
