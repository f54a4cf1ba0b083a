"""A client that publishes and subscribes on one connection gets a message ID before the message."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from pullstream_emulator.engine import Consumer
from pullstream_emulator.faults import Faults
from pullstream_emulator.schemas import SchemaRegistry
from pullstream_emulator.services.handlers import method_handlers
from pullstream_emulator.services.publisher import PublisherService
from pullstream_emulator.services.reply_first import DELAY, RECENT, ReplyFirst
from pullstream_emulator.services.schema_checks import CheckThreads, SchemaChecks
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import Unavailable
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION, TOPIC, Broker
from tests.emulator.wire import TIMEOUT, Wire

# Timers may fire early by the resolution of the loop's clock.
RESOLUTION = 0.0001


async def test_messages_on_the_publishers_own_connection_are_sent_after_the_publish_reply() -> None:
    """The next message for the publisher may be the one that it has just published."""
    loop = asyncio.get_running_loop()
    reply_first = ReplyFirst()
    reply_first.published("a")
    began = loop.time()
    await reply_first.delay("a")
    assert loop.time() - began >= DELAY - RESOLUTION


@pytest.mark.parametrize(
    ("published", "peer", "later"),
    [("a", "b", 0.0), ("", "", 0.0), ("a", "a", RECENT)],
    ids=["another connection", "connections that cannot be told", "long after"],
)
async def test_messages_delivered_on_other_connections_do_not_wait_for_the_publish_reply(
    published: str, peer: str, later: float
) -> None:
    """Other clients do not wait for a single turn of the loop."""
    reply_first = ReplyFirst()
    reply_first.published(published)
    await asyncio.sleep(later)
    with pytest.raises(StopIteration):
        reply_first.delay(peer).send(None)


def test_a_message_that_must_follow_the_publish_reply_waits_for_the_disk_write() -> None:
    """A Publish that waits for its barrier is answered after it, also when the barrier fails."""

    async def turn(failure: Unavailable | None) -> None:
        written = asyncio.get_running_loop().create_future()
        reply_first = ReplyFirst(lambda: written)
        reply_first.published("a")
        giving = asyncio.ensure_future(reply_first.delay("a"))
        await asyncio.sleep(2 * DELAY)
        assert not giving.done()
        if failure is None:
            written.set_result(None)
        else:
            written.set_exception(failure)
        await giving

    for failure in (None, Unavailable("The disk is full.")):
        asyncio.run(turn(failure))


def test_an_idle_streaming_pull_of_the_publisher_gets_the_message_after_the_publish_reply(
    wire: Wire,
) -> None:
    """The delay is at least DELAY, counted from the call, on any machine."""
    wire.create()
    stream = wire.stream()
    assert stream.is_quiet()
    request = pubsub.PublishRequest(topic=TOPIC, messages=[pubsub.PubsubMessage(data=b"x")])
    for _ in range(20):
        began = time.perf_counter()
        call = wire.start("Publish", request)
        (message,) = stream.messages(1)
        assert time.perf_counter() - began >= DELAY
        assert call.result().message_ids == [message.message.message_id]
        wire.acknowledge(message.ack_id)


async def test_a_subscriber_may_get_a_message_before_its_publisher_gets_the_reply() -> None:
    """A waiting client receives the message earlier by the time to write the answer."""
    clock = ManualClock()
    broker = Broker(clock)
    checks = SchemaChecks(broker.engine, SchemaRegistry(wall=clock.now), CheckThreads())
    service = PublisherService(broker.engine, ReplyFirst(), checks, clock)
    handlers = method_handlers(service, faults=Faults(clock))
    # Any, because handler and context are more general than the part that is called here.
    publish: Any = handlers["google.pubsub.v1.Publisher"]["Publish"].unary_unary
    order: list[str] = []

    class Caller:
        def peer(self) -> str:
            return "publisher"

        def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
            return ()

    woken = asyncio.Event()

    async def stream() -> None:
        await woken.wait()
        order.append("message")

    consumer = Consumer(ack_deadline=10, wake=woken.set)
    assert broker.engine.take(broker.engine.join(SUBSCRIPTION, consumer), consumer) == []
    writer = asyncio.ensure_future(stream())
    await asyncio.sleep(0)
    request = pubsub.PublishRequest(topic=TOPIC, messages=[pubsub.PubsubMessage(data=b"x")])
    await publish(request, Caller())
    order.append("answer")
    await asyncio.wait_for(writer, TIMEOUT)
    assert order == ["message", "answer"]
