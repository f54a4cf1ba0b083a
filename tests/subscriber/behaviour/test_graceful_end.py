"""After a graceful end, no message waits for the end of a lease.

The broker gets no option: as in Google's service, the end of a stream does not end its leases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pullstream import AsyncSubscriberClient, FlowControl, Message
from pullstream_protocol.clock import ManualClock
from tests.subscriber.behaviour.test_poison import SUBSCRIPTION, World, leases
from tests.subscriber.streaming.fakes import TIMEOUT, eventually
from tests.subscriber.streaming.managed import Gate

COUNT = 30

End = Callable[[World, Any], object]
ENDS: dict[str, End] = {
    "cancel": lambda world, future: future.cancel(),
    "close": lambda world, future: future.close(timeout=TIMEOUT),
    "close, nack": lambda world, future: future.close(timeout=TIMEOUT, mode="nack"),
    "client.close": lambda world, future: world.client.close(),
}


@pytest.fixture(params=[False, True], ids=["at-least-once", "exactly-once"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    # The time stands still, so that no lease can end by itself.
    world = World(ManualClock(), enable_exactly_once_delivery=request.param)
    with world.stack:
        world.publish(COUNT)
        for number in range(COUNT):
            world.publish_other(number)
        yield world


@pytest.mark.parametrize("window", [1, 5, 1000])
@pytest.mark.parametrize("how", ENDS)
def test_a_graceful_end_of_a_subscription_returns_unsettled_messages_to_the_server(
    world: World, how: str, window: int
) -> None:
    """Messages with running callbacks, queued, held for their key, and unread ones."""
    gate = Gate(Message.nack)
    limits = FlowControl(max_messages=window)
    future = world.client.subscribe(SUBSCRIPTION, gate, limits)
    gate.wait_for()
    gate.open(2 * COUNT)
    ENDS[how](world, future)
    future.result(TIMEOUT)
    eventually(lambda: world.broker.inspect(leases) == 0)


def test_gracefully_ending_an_async_subscription_nacks_its_unsettled_messages(world: World) -> None:
    """The client's callbacks are coroutines, which are cancelled."""

    async def work() -> None:
        begun = asyncio.Event()

        async def callback(_message: Message) -> None:
            begun.set()
            await asyncio.Event().wait()

        async with AsyncSubscriberClient(endpoint=world.broker.endpoint) as client:
            future = client.subscribe(SUBSCRIPTION, callback)
            await begun.wait()
            future.cancel()
            await future

    asyncio.run(work())
    eventually(lambda: world.broker.inspect(leases) == 0)
