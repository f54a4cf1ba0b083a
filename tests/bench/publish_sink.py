"""A server that only accepts Publish requests, with as little work as possible.

    python -m tests.bench.publish_sink --latency 0.02

It counts the messages of a request by skipping over their fields, and answers with IDs that it
encoded before. It is faster than every client.
"""

from __future__ import annotations

import argparse
import asyncio
from functools import cache
from typing import Any

import grpc
import grpc.aio

from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import PUBLISHER

# The tag of the field `messages` of a PublishRequest.
MESSAGES = 0x12


@cache
def response_for(messages: int) -> bytes:
    ids = [str(10_000_000 + number) for number in range(messages)]
    return pubsub.PublishResponse(message_ids=ids).SerializeToString()


def count_messages(request: bytes) -> int:
    """Return the number of messages in an encoded PublishRequest."""
    count = at = 0
    while at < len(request):
        count += request[at] == MESSAGES
        at += 1
        size = shift = 0
        while True:
            byte = request[at]
            at += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        at += size
    return count


async def serve(latency: float) -> None:
    async def publish(request: bytes, context: Any) -> bytes:
        if latency:
            await asyncio.sleep(latency)
        return response_for(count_messages(request))

    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Publish": grpc.unary_unary_rpc_method_handler(publish)
    }
    # Google's servers accept 100 calls per connection at a time or more.
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(PUBLISHER, handlers)])
    port = server.add_insecure_port("localhost:0")
    await server.start()
    print(f"Server started, listening on {port}", flush=True)
    await server.wait_for_termination()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency", type=float, default=0.0, help="seconds each call takes")
    asyncio.run(serve(parser.parse_args().latency))


if __name__ == "__main__":
    main()
