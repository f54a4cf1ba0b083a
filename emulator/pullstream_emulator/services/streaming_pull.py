"""One open StreamingPull: a task that reads requests, and a loop that writes messages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import grpc.aio

from pullstream_emulator.engine import Consumer, Delivery, Engine
from pullstream_emulator.engine.delivery.ack_ids import UNORDERED
from pullstream_emulator.engine.settings.resource_settings import check_ack_deadline
from pullstream_protocol import errors
from pullstream_protocol.messages import encoded_pb2 as encoded
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .context import Context, client_name
from .deliveries import add_deliveries
from .reply_first import ReplyFirst

_FIRST_ONLY = (
    "subscription",
    "max_outstanding_messages",
    "max_outstanding_bytes",
    "protocol_version",
)


class StreamingPull:
    """Serves one stream until the client half-closes or cancels it, or the subscription ends.

    Runs on the broker's event loop only. The writer takes the next messages from the engine after
    the previous response is written. So a slow client delays only its own messages, and the
    messages that arrive meanwhile go out in one larger response.
    """

    def __init__(self, engine: Engine, context: Context, reply_first: ReplyFirst) -> None:
        self._engine = engine
        self._context = context
        self._reply_first = reply_first
        self._peer = context.peer()
        self._woken = asyncio.Event()
        self._wants_pongs = False
        # Parts of a response that are not messages: confirmations and pongs.
        self._notice: encoded.EncodedStreamingPullResponse | None = None
        # The response that is being written. The client has none of its messages yet.
        self._unsent: Sequence[Delivery] = ()

    async def run(self) -> None:
        """Serve the stream to its end. The leases of its messages continue."""
        first = await self._context.read()
        if first is grpc.aio.EOF:
            return
        consumer = self._open(first)
        self._subscription = self._engine.join(first.subscription, consumer)
        half_closed = False
        try:
            # Shows the client that the stream is open, before there is a message.
            await self._context.send_initial_metadata(())
            self._apply(first, consumer)
            # Wait before the next read: a client that half-closes after its first request still
            # gets the messages that are ready.
            await self._reply_first.delay(self._peer)
            reader = asyncio.create_task(self._read(consumer))
            try:
                await self._write(consumer, reader)
                half_closed = True
            finally:
                reader.cancel()
                await asyncio.gather(reader, return_exceptions=True)
        finally:
            # The client may go on with the messages that it has: official clients cancel their
            # stream and acknowledge afterwards, and a broken connection is opened again.
            returns = self._engine.return_leases_on_disconnect and not half_closed
            give_back = None if returns else [delivery.ack_id for delivery in self._unsent]
            self._engine.leave(self._subscription, consumer, give_back=give_back)

    def _open(self, first: pubsub.StreamingPullRequest) -> Consumer:
        if not first.subscription:
            raise errors.InvalidArgument(
                "The first StreamingPullRequest must set the field subscription."
            )
        # Report a missing subscription before a missing deadline, because it is the caller's actual
        # mistake.
        self._engine.get_subscription(first.subscription)
        if first.stream_ack_deadline_seconds == 0:
            raise errors.InvalidArgument(
                "The first StreamingPullRequest must set the field stream_ack_deadline_seconds."
            )
        check_ack_deadline(first.stream_ack_deadline_seconds, self._engine.min_ack_deadline)
        self._name = first.subscription
        self._wants_pongs = first.protocol_version >= 1
        return Consumer(
            ack_deadline=first.stream_ack_deadline_seconds,
            wake=self._woken.set,
            max_messages=first.max_outstanding_messages,
            max_bytes=first.max_outstanding_bytes,
            client=client_name(self._context, first.client_id),
        )

    # ---- requests ------------------------------------------------------------------------------

    async def _read(self, consumer: Consumer) -> None:
        while (request := await self._context.read()) is not grpc.aio.EOF:
            for field in _FIRST_ONLY:
                if getattr(request, field):
                    raise errors.InvalidArgument(
                        f"The field {field} may be set only in the first StreamingPullRequest."
                    )
            self._apply(request, consumer)
            if self._wants_pongs and request.ByteSize() == 0:
                self._add_notice()

    def _apply(self, request: pubsub.StreamingPullRequest, consumer: Consumer) -> None:
        seconds, modified = request.modify_deadline_seconds, request.modify_deadline_ack_ids
        if len(seconds) != len(modified):
            raise errors.InvalidArgument(
                "The fields modify_deadline_seconds and modify_deadline_ack_ids must have the same "
                f"length; they have {len(seconds)} and {len(modified)}."
            )
        for deadline in set(seconds):
            check_ack_deadline(deadline, minimum=0)
        if request.stream_ack_deadline_seconds:
            minimum = self._engine.min_ack_deadline
            check_ack_deadline(request.stream_ack_deadline_seconds, minimum)
        self._subscription.check_ack_ids([*request.ack_ids, *modified])
        # The whole request is valid. The changes begin here.
        if request.stream_ack_deadline_seconds:
            consumer.ack_deadline = request.stream_ack_deadline_seconds
        if request.ack_ids:
            ack_ids = list(request.ack_ids)
            self._confirm_acks(ack_ids, self._engine.acknowledge(self._name, ack_ids))
        by_seconds: dict[int, list[str]] = {}
        for ack_id, deadline in zip(modified, seconds, strict=True):
            by_seconds.setdefault(deadline, []).append(ack_id)
        for deadline, ack_ids in by_seconds.items():
            refused = self._engine.modify_ack_deadline(self._name, ack_ids, deadline)
            self._confirm_deadlines(ack_ids, refused)

    def _confirm_acks(self, ack_ids: list[str], refused: dict[str, str]) -> None:
        if self._subscription.config.enable_exactly_once_delivery:
            confirmation = self._add_notice().acknowledge_confirmation
            confirmation.ack_ids.extend(i for i in ack_ids if i not in refused)
            for ack_id, code in refused.items():
                is_unordered = code == UNORDERED
                failed = "unordered_ack_ids" if is_unordered else "invalid_ack_ids"
                getattr(confirmation, failed).append(ack_id)

    def _confirm_deadlines(self, ack_ids: list[str], refused: dict[str, str]) -> None:
        if self._subscription.config.enable_exactly_once_delivery:
            confirmation = self._add_notice().modify_ack_deadline_confirmation
            confirmation.ack_ids.extend(i for i in ack_ids if i not in refused)
            confirmation.invalid_ack_ids.extend(refused)

    def _add_notice(self) -> encoded.EncodedStreamingPullResponse:
        """Return the next response, which is sent even without messages (as a pong)."""
        if self._notice is None:
            self._notice = encoded.EncodedStreamingPullResponse()
            self._woken.set()
        return self._notice

    # ---- responses -----------------------------------------------------------------------------

    async def _write(self, consumer: Consumer, reader: asyncio.Task[None]) -> None:
        reader.add_done_callback(lambda _: self._woken.set())
        while True:
            if reader.done():
                # `result` raises the error of an invalid request.
                reader.result()
                # The client half-closed or cancelled the stream. These cannot be distinguished yet,
                # but on a cancelled stream the write fails.
                await self._context.write(self._response([]))
                return
            if consumer.closed is not None:
                raise consumer.closed
            self._woken.clear()
            taken = self._engine.lease(self._subscription, consumer)
            if taken or self._notice is not None:
                self._unsent = taken
                await self._context.write(self._response(taken))
                self._unsent = ()
            else:
                await self._woken.wait()
                await self._reply_first.delay(self._peer)

    def _response(self, taken: Sequence[Delivery]) -> encoded.EncodedStreamingPullResponse:
        response, self._notice = self._notice, None
        response = response or encoded.EncodedStreamingPullResponse()
        config = self._subscription.config
        add_deliveries(response, taken, config)
        # Every response has the properties, even if both are off.
        properties = response.subscription_properties
        properties.exactly_once_delivery_enabled = config.enable_exactly_once_delivery
        properties.message_ordering_enabled = config.enable_message_ordering
        return response
