"""Fetches and acknowledges a backlog: one client, in its own process.

    python -m tests.bench.fetch_client pullstream localhost:PORT --messages 300000 --batch 1000

Prints its figures as one JSON object. The clock runs from the first fetch until the server has the
last acknowledgements.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time

from .client import SUBSCRIPTION, Figures
from .fetch_cases import NATS, REDIS
from .peers import OURS
from .publisher import TOPIC

DATA = b"x" * 100
# The messages in each publish request.
PUBLISHED = 1000

STREAM, GROUP = "bench", "bench"


def pullstream(endpoint: str, messages: int, batch: int) -> float:
    from pullstream import SubscriberClient, TopicAdminClient

    name = SUBSCRIPTION.format(0)
    with TopicAdminClient(endpoint=endpoint) as topics, SubscriberClient(endpoint=endpoint) as ours:
        topics.create_topic(name=TOPIC)
        ours.create_subscription(name=name, topic=TOPIC, ack_deadline_seconds=600)
        for first in range(0, messages, PUBLISHED):
            count = min(PUBLISHED, messages - first)
            topics.publish(TOPIC, [{"data": DATA}] * count)
        began, done = time.perf_counter(), 0
        while done < messages:
            fetched = ours.fetch(name, batch)
            fetched.ack()
            done += len(fetched)
        return time.perf_counter() - began


def nats_py(endpoint: str, messages: int, batch: int) -> float:
    async def work() -> float:
        import nats
        from nats.js.api import StorageType

        client = await nats.connect(f"nats://{endpoint}")
        stream = client.jetstream(publish_async_max_pending=PUBLISHED)
        await stream.add_stream(name=STREAM, subjects=[STREAM], storage=StorageType.MEMORY)
        for first in range(0, messages, PUBLISHED):
            count = min(PUBLISHED, messages - first)
            published = [await stream.publish_async(STREAM, DATA) for _ in range(count)]
            await asyncio.gather(*published)
        subscription = await stream.pull_subscribe(STREAM, GROUP)
        began, done = time.perf_counter(), 0
        while done < messages:
            fetched = await subscription.fetch(batch)
            for message in fetched:
                await message.ack()
            done += len(fetched)
        # Acknowledgements are published: the server has them when it has answered a ping.
        await client.flush()
        seconds = time.perf_counter() - began
        await client.close()
        return seconds

    return asyncio.run(work())


def redis_py(endpoint: str, messages: int, batch: int) -> float:
    import redis

    host, _, port = endpoint.rpartition(":")
    with redis.Redis(host=host, port=int(port)) as client:
        client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        for first in range(0, messages, PUBLISHED):
            pipeline = client.pipeline(transaction=False)
            for _ in range(min(PUBLISHED, messages - first)):
                pipeline.xadd(STREAM, {"data": DATA})
            pipeline.execute()
        began, done = time.perf_counter(), 0
        while done < messages:
            ((_, entries),) = client.xreadgroup(GROUP, "bench", {STREAM: ">"}, count=batch)
            client.xack(STREAM, GROUP, *(entry for entry, _ in entries))
            done += len(entries)
        return time.perf_counter() - began


PEERS = {OURS: pullstream, NATS: nats_py, REDIS: redis_py}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("endpoint")
    parser.add_argument("--messages", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    arguments = parser.parse_args()
    seconds = PEERS[arguments.peer](arguments.endpoint, arguments.messages, arguments.batch)
    figures: Figures = {"rate": arguments.messages / seconds}
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
