"""A server with little overhead: it sends the same encoded responses at full speed, for ever.

    python -m tests.bench.feed --per-response 10

Each subscription, by its name, has a stream. Flow control is honoured, so a client is measured with
its own window. A response is encoded once, before the first client comes. Ack ids repeat after some
windows of messages. Heartbeats are not answered.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import math
from typing import Any

import grpc
import grpc.aio
from google.protobuf.timestamp_pb2 import Timestamp

from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import SUBSCRIBER

# Messages encoded in advance: many more than any window, as long as they fit into POOL_BYTES.
POOL = 200_000
POOL_BYTES = 300_000_000


class Window:
    """The messages that one stream may still send."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._outstanding = 0
        self._freed = asyncio.Event()

    async def take(self, messages: int) -> None:
        while self._outstanding >= self._limit:
            self._freed.clear()
            await self._freed.wait()
        self._outstanding += messages

    def give_back(self, messages: int) -> None:
        self._outstanding -= messages
        self._freed.set()


class Feed:
    """The service. Everything runs on one event loop."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._latency: float = arguments.latency
        self._per_response: int = arguments.per_response
        # None: no limit.
        self._limit = arguments.total // arguments.per_response if arguments.total else None
        pool = min(POOL, POOL_BYTES // arguments.size) // arguments.per_response
        self._responses = [_encode(arguments, number) for number in range(pool)]
        self._windows: dict[str, Window] = {}

    async def streaming_pull(self, _requests: object, context: Any) -> None:
        first = pubsub.StreamingPullRequest.FromString(await context.read())
        window = Window(first.max_outstanding_messages or math.inf)
        self._windows[first.subscription] = window
        for response in itertools.islice(itertools.cycle(self._responses), self._limit):
            await window.take(self._per_response)
            await context.write(response)
        # All is sent. The stream lasts until the client ends it.
        await asyncio.Event().wait()

    async def acknowledge(self, encoded: bytes, _context: object) -> bytes:
        await asyncio.sleep(self._latency)
        request = pubsub.AcknowledgeRequest.FromString(encoded)
        self._windows[request.subscription].give_back(len(request.ack_ids))
        return b""

    async def modify_ack_deadline(self, encoded: bytes, _context: object) -> bytes:
        await asyncio.sleep(self._latency)
        request = pubsub.ModifyAckDeadlineRequest.FromString(encoded)
        if request.ack_deadline_seconds == 0:
            self._windows[request.subscription].give_back(len(request.ack_ids))
        return b""


def _encode(arguments: argparse.Namespace, number: int) -> bytes:
    """Return the response of that number, encoded."""
    response = pubsub.StreamingPullResponse()
    properties = response.subscription_properties
    properties.message_ordering_enabled = arguments.keys > 0
    properties.exactly_once_delivery_enabled = arguments.exactly_once
    properties.SetInParent()
    first = number * arguments.per_response
    for n in range(first, first + arguments.per_response):
        message = pubsub.PubsubMessage(
            data=b"x" * arguments.size,
            message_id=str(n),
            ordering_key=f"key-{n % arguments.keys}" if arguments.keys else "",
            publish_time=Timestamp(seconds=1_700_000_000),
        )
        response.received_messages.add(ack_id=f"{n:0180}", message=message)
    return response.SerializeToString()


async def serve(arguments: argparse.Namespace) -> None:
    feed = Feed(arguments)
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "StreamingPull": grpc.stream_stream_rpc_method_handler(feed.streaming_pull),
        "Acknowledge": grpc.unary_unary_rpc_method_handler(feed.acknowledge),
        "ModifyAckDeadline": grpc.unary_unary_rpc_method_handler(feed.modify_ack_deadline),
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SUBSCRIBER, handlers)])
    port = server.add_insecure_port("localhost:0")
    await server.start()
    print(f"Server started, listening on {port}", flush=True)
    await server.wait_for_termination()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--per-response", type=int, default=10, help="messages in each response")
    parser.add_argument("--size", type=int, default=100, help="bytes of data in a message")
    parser.add_argument("--keys", type=int, default=0, help="ordering keys; 0: unordered")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds each unary call takes")
    parser.add_argument("--exactly-once", action="store_true")
    parser.add_argument("--total", type=int, default=0, help="messages a stream; 0: no end")
    arguments = parser.parse_args()
    if arguments.total % arguments.per_response:
        parser.error("--total must be a multiple of --per-response")
    asyncio.run(serve(arguments))


if __name__ == "__main__":
    main()
