"""Peers for the channel tests: a bare subscriber, recording callbacks, and a call recorder."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from pullstream import ChannelMessage, ChannelSubscriber
from pullstream_emulator import Emulator
from pullstream_protocol.channels import ChannelStatistics
from pullstream_protocol.errors import PullstreamError
from pullstream_protocol.messages import channels_pb2 as channels
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import BY_METHOD
from tests.subscriber.streaming.fakes import eventually

ORDERS = "projects/test/topics/orders"
BILLS = "projects/test/topics/bills"
TIMEOUT = 20.0


def create_topics(emulator: Emulator) -> None:
    for name in (ORDERS, BILLS):
        config = pubsub.Topic(name=name)
        emulator.inspect(lambda engine, config=config: engine.create_topic(config))  # type: ignore[misc]


def statistics(emulator: Emulator) -> ChannelStatistics:
    return emulator.broker.channels.statistics()


class BareSubscriber:
    """A subscriber at the level of the wire format.

    It copies its session data into each request.
    """

    def __init__(self, endpoint: str, subscriber_id: str = "bare", token: str = "") -> None:
        self._channel = grpc.insecure_channel(
            endpoint,
            options=[
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.max_receive_message_length", -1),
            ],
        )
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self.subscriber_id = subscriber_id
        self.incarnation = 0
        self.batch_no = 0

    def close(self) -> None:
        self._channel.close()

    def start(self, method: str, request: Any, timeout: float | None = TIMEOUT) -> Any:
        """Start a call and return its future."""
        rpc = BY_METHOD[method]
        call: Any = self._channel.unary_unary(
            rpc.path,
            request_serializer=rpc.request.SerializeToString,
            response_deserializer=rpc.response.FromString,
        )
        return call.future(request, timeout=timeout, metadata=self._metadata)

    def command(self, *interests: tuple[str, str | None], subscribe: bool, **fields: Any) -> Any:
        """Send a batch and return the response. The first batch replaces all subscriptions."""
        self.batch_no += 1
        commands = [channels.Command(channel=c, key=k, subscribe=subscribe) for c, k in interests]
        return self.send(commands=commands, **fields)

    def send(self, **fields: Any) -> Any:
        known = {"incarnation": self.incarnation, "replace": not self.incarnation}
        request = channels.CommandsRequest(
            **{"subscriber_id": self.subscriber_id, "batch_no": self.batch_no, **known, **fields}
        )
        response = self.start("Commands", request).result()
        self.incarnation = response.incarnation
        return response

    def subscribe(self, channel: str, *keys: str | None, **fields: Any) -> Any:
        return self.command(*((channel, key) for key in keys), subscribe=True, **fields)

    def unsubscribe(self, channel: str, *keys: str | None) -> Any:
        return self.command(*((channel, key) for key in keys), subscribe=False)

    def begin_poll(
        self, processed: int = 0, *, timeout: float | None = TIMEOUT, **fields: Any
    ) -> Any:
        """Start a long poll and return its future."""
        request = channels.PollRequest(
            **{
                "subscriber_id": self.subscriber_id,
                "incarnation": self.incarnation,
                "max_processed_seq": processed,
                **fields,
            }
        )
        return self.start("Poll", request, timeout)

    def poll(self, processed: int = 0, **fields: Any) -> list[Any]:
        """Return the items of one poll."""
        response = self.begin_poll(processed, **fields).result()
        self.incarnation = response.incarnation
        return list(response.items)

    def unregister(self) -> None:
        self.start(
            "Unregister", channels.UnregisterRequest(subscriber_id=self.subscriber_id)
        ).result()


def data_of(items: list[Any]) -> list[str]:
    return [item.message.data.decode() for item in items]


class Heard:
    """Records the arguments of subscription callbacks."""

    def __init__(self) -> None:
        self.messages: list[ChannelMessage] = []
        self.failures: list[PullstreamError] = []
        self.done: list[PullstreamError | None] = []

    @property
    def data(self) -> list[str]:
        return [message.data.decode() for message in self.messages]

    def subscribe(
        self,
        listener: ChannelSubscriber,
        channel: str,
        key: str | None = None,
        *,
        wait: bool = True,
    ) -> bool:
        """Subscribe with callbacks that record everything, and wait for the publisher's answer."""
        answers = len(self.done)
        is_new = listener.subscribe(
            channel,
            key,
            on_message=self.messages.append,
            on_failure=self.failures.append,
            on_done=self.done.append,
        )
        if wait:
            eventually(lambda: len(self.done) > answers)
        return is_new

    def wait_for(self, *data: str) -> None:
        """Wait until exactly these messages have arrived, in this order."""
        eventually(lambda: len(self.messages) >= len(data))
        assert self.data == list(data)


class Recorder(grpc.aio.ServerInterceptor):
    """Records the requests that subscribers send to a broker, and counts the open calls."""

    def __init__(self) -> None:
        self.batches: list[channels.CommandsRequest] = []
        self.polls: list[channels.PollRequest] = []
        self.batches_open = self.polls_open = 0
        self.most_batches = self.most_polls = 0

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        handler = await continuation(handler_call_details)
        method = handler_call_details.method.rpartition("/")[2]
        if method == "Commands":
            return grpc.unary_unary_rpc_method_handler(
                self._noting_batch(handler.unary_unary),
                handler.request_deserializer,
                handler.response_serializer,
            )
        if method == "Poll":
            return grpc.unary_stream_rpc_method_handler(
                self._noting_poll(handler.unary_stream),
                handler.request_deserializer,
                handler.response_serializer,
            )
        return handler

    def _noting_batch(self, behaviour: Any) -> Any:
        async def answer(request: channels.CommandsRequest, context: Any) -> Any:
            self.batches.append(request)
            self.batches_open += 1
            self.most_batches = max(self.most_batches, self.batches_open)
            try:
                return await behaviour(request, context)
            finally:
                self.batches_open -= 1

        return answer

    def _noting_poll(self, behaviour: Any) -> Any:
        async def answer(request: channels.PollRequest, context: Any) -> Any:
            self.polls.append(request)
            self.polls_open += 1
            self.most_polls = max(self.most_polls, self.polls_open)
            try:
                return await behaviour(request, context)
            finally:
                self.polls_open -= 1

        return answer

    def commands(self) -> list[list[tuple[str, bool]]]:
        """Return the keys of each batch, each with True for subscribe and False for unsubscribe."""
        return [[(c.key, c.subscribe) for c in batch.commands] for batch in self.batches]
