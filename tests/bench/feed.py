"""A server that costs little: it sends the same encoded responses for ever, as fast as it may.

    python -m tests.bench.feed --per-response 10

Prints the port it listens on. Flow control is honoured, so a client is measured with the window it
asked for. A response is encoded once, before the first client comes; ack ids repeat after POOL
messages, which is more than any window.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
from typing import Any

import grpc
import grpc.aio
from google.protobuf.timestamp_pb2 import Timestamp

from protocol.messages import pubsub_pb2 as pubsub
from protocol.rpcs import SUBSCRIBER

POOL = 200_000


class Feed:
    """The service. Everything runs on one event loop."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._latency: float = arguments.latency
        self._per_response: int = arguments.per_response
        self._responses = [
            self._encode(arguments, number) for number in range(POOL // arguments.per_response)
        ]
        self._outstanding = 0
        self._settled = asyncio.Event()

    @staticmethod
    def _encode(arguments: argparse.Namespace, number: int) -> bytes:
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

    async def streaming_pull(self, _requests: object, context: Any) -> None:
        first = pubsub.StreamingPullRequest.FromString(await context.read())
        window = first.max_outstanding_messages or float("inf")
        self._outstanding = 0
        for response in itertools.cycle(self._responses):
            while self._outstanding >= window:
                self._settled.clear()
                await self._settled.wait()
            self._outstanding += self._per_response
            await context.write(response)

    async def acknowledge(self, request: bytes, _context: object) -> bytes:
        await asyncio.sleep(self._latency)
        self._outstanding -= len(pubsub.AcknowledgeRequest.FromString(request).ack_ids)
        self._settled.set()
        return b""

    async def modify_ack_deadline(self, _request: bytes, _context: object) -> bytes:
        await asyncio.sleep(self._latency)
        return b""


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
    print(port, flush=True)
    await server.wait_for_termination()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--per-response", type=int, default=10)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--keys", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.0)
    parser.add_argument("--exactly-once", action="store_true")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
