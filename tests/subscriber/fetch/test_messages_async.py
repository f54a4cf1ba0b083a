"""Fetching on an event loop: the same rules, awaited."""

from __future__ import annotations

import asyncio
import gc

import pytest

from pullstream import (
    AcknowledgeError,
    AsyncSubscriberClient,
    PullTimeout,
    SubscriberClosed,
)
from pullstream_emulator import Emulator
from tests.subscriber.fetching import NAME, TOPIC


async def test_a_coroutine_can_fetch_and_acknowledge_messages(broker: Emulator) -> None:
    """The methods of the list are awaited, and the block returns unsettled messages."""
    async with AsyncSubscriberClient(endpoint=broker.endpoint) as client:
        waiting = asyncio.create_task(client.fetch(NAME, 3, min_messages=3))
        for data in ("a", "b", "c"):
            broker.publish(TOPIC, data)
        messages = await waiting
        assert [message.data for message in messages] == [b"a", b"b", b"c"]
        await messages.modify_ack_deadline(30)
        messages[0].ack()
        async with messages:
            messages[1].ack()
        (again,) = fetched = await client.fetch(NAME, 3)
        assert again.data == b"c"
        await fetched.nack()
        await (await client.fetch(NAME)).ack()
        assert await client.fetch(NAME, no_wait=True) == []
        with pytest.raises(PullTimeout):
            await client.fetch(NAME, timeout=0.05)
        nothing = await client.fetch(NAME, timeout=3, missing_ok=True)
        assert (nothing, nothing.reason) == ([], "timed_out")
        await nothing.ack()
    assert broker.backlog(NAME) == 0


def test_an_async_ack_error_raised_by_the_with_block_of_a_fetch_is_not_logged_by_asyncio(
    broker: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    """The block raises it. asyncio finds no unretrieved exception."""
    name = NAME + "-once"

    async def main() -> None:
        async with AsyncSubscriberClient(endpoint=broker.endpoint) as client:
            client.admin.create_subscription(
                request={"name": name, "topic": TOPIC, "enable_exactly_once_delivery": True}
            )
            broker.publish(TOPIC, "a")
            messages = await client.fetch(name)

            async def work() -> None:
                async with messages:
                    broker.inspect(lambda engine: engine.expire(name))
                    messages[0].ack()

            with pytest.raises(AcknowledgeError, match="INVALID_ACK_ID"):
                await work()

    asyncio.run(main())
    gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []


async def test_closing_an_async_client_nacks_the_messages_of_an_open_with_block_of_a_fetch(
    broker: Emulator,
) -> None:
    """A close on the loop itself does not wait for the coroutine."""
    for closes_on_loop in (False, True):
        client = AsyncSubscriberClient(endpoint=broker.endpoint)
        broker.publish(TOPIC, "a")
        waiting = asyncio.create_task(client.fetch(NAME, 2, timeout=None, min_messages=2))
        while not broker.inspect(lambda engine: engine.waiting_pulls(NAME)):
            await asyncio.sleep(0)
        if closes_on_loop:
            client.admin.close()
        else:
            await client.close()
        with pytest.raises(SubscriberClosed):
            await waiting
        async with AsyncSubscriberClient(endpoint=broker.endpoint) as other:
            await (await other.fetch(NAME)).ack()


async def test_cancelling_an_async_fetch_nacks_the_messages_received_so_far(
    broker: Emulator,
) -> None:
    """Messages held while the coroutine waits for more are returned."""
    async with AsyncSubscriberClient(endpoint=broker.endpoint) as client:
        broker.publish(TOPIC, "a")
        waiting = asyncio.create_task(client.fetch(NAME, 2, timeout=None, min_messages=2))
        while not broker.inspect(lambda engine: engine.waiting_pulls(NAME)):
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert [m.data for m in await client.fetch(NAME)] == [b"a"]
    assert broker.inspect(lambda engine: engine.waiting_pulls(NAME)) == 0


async def test_many_coroutines_can_wait_for_a_fetch_concurrently_without_a_thread_each(
    broker: Emulator,
) -> None:
    """A thread for each would be too many."""
    async with AsyncSubscriberClient(endpoint=broker.endpoint) as client:
        waiting = [asyncio.create_task(client.fetch(NAME, timeout=None)) for _ in range(200)]
        while broker.inspect(lambda engine: engine.waiting_pulls(NAME)) < len(waiting):
            await asyncio.sleep(0)
        for number in range(len(waiting)):
            broker.publish(TOPIC, str(number))
        got = [int(messages[0].data) for messages in await asyncio.gather(*waiting)]
        assert sorted(got) == list(range(len(waiting)))
