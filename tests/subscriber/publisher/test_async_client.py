"""AsyncPublisherClient: awaits on an event loop."""

from __future__ import annotations

import asyncio
import math

import pytest

from pullstream import (
    AsyncPublisherClient,
    BatchSettings,
    PublisherClosed,
)
from pullstream_emulator import Emulator
from pullstream_protocol.errors import NotFound
from tests.threads import on_threads

from .conftest import TOPIC, Server, limited_client


async def test_a_thousand_asyncio_tasks_can_publish_concurrently(emulator: Emulator) -> None:
    """Each message gets its own ID."""
    async with AsyncPublisherClient(endpoint=emulator.endpoint) as publisher:
        ids = await asyncio.gather(
            *(publisher.publish(TOPIC, b"%d" % number) for number in range(1000))
        )
    assert len(set(ids)) == 1000
    assert len(emulator.messages(TOPIC)) == 1000


async def test_the_result_of_awaiting_publish_many_is_the_list_of_all_message_ids(
    emulator: Emulator,
) -> None:
    """The result has all IDs."""
    async with AsyncPublisherClient(endpoint=emulator.endpoint) as publisher:
        assert len(await publisher.publish_many(TOPIC, [b"x"] * 1500)) == 1500
        assert publisher.statistics().published == 1500


async def test_awaiting_a_failed_async_publish_raises_the_error_of_its_request(
    emulator: Emulator,
) -> None:
    """`result()` of a future raises the same error."""
    async with AsyncPublisherClient(endpoint=emulator.endpoint) as publisher:
        with pytest.raises(NotFound):
            await publisher.publish("projects/project-1/topics/unknown", b"x")


async def test_cancelling_a_task_that_awaits_a_publish_does_not_withdraw_the_message(
    server: Server,
) -> None:
    """The message is published all the same."""
    server.gate.clear()
    async with AsyncPublisherClient(endpoint=server.endpoint) as publisher:
        task = asyncio.ensure_future(publisher.publish(TOPIC, b"x"))
        await asyncio.to_thread(server.wait_for_calls, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        server.gate.set()
    assert publisher.statistics().published == 1


async def test_publish_flow_control_never_blocks_the_event_loop(server: Server) -> None:
    """The await of a message without room takes longer; the order of the calls is kept."""
    server.gate.clear()
    publisher = limited_client(server, batches=BatchSettings(max_latency=60))
    tasks = [asyncio.ensure_future(publisher.publish(TOPIC, b"%d" % number)) for number in range(5)]
    await asyncio.to_thread(server.wait_for_calls, 1)
    assert publisher.statistics().waiting == 1
    server.gate.set()
    assert await asyncio.gather(*tasks) == ["1", "2", "3", "4", "5"]
    await publisher.close()
    assert server.requests == [[b"%d" % number] for number in range(5)]


async def test_publishes_that_wait_for_flow_control_fail_when_the_async_publisher_is_closed(
    server: Server,
) -> None:
    """Every await ends."""
    server.gate.clear()
    publisher = limited_client(server)
    futures = [publisher.publish(TOPIC, b"x") for _ in range(3)]
    await publisher.close(0.1)
    for future in futures:
        with pytest.raises(PublisherClosed):
            await future


@pytest.mark.parametrize("stops_first", [False, True])
def test_closing_the_async_publisher_sends_messages_that_wait_for_flow_control(
    server: Server, stops_first: bool
) -> None:
    """`publish` has accepted the messages, so the close waits for them, also after `stop`."""

    async def main() -> list[str]:
        # Nothing is sent because of its latency.
        publisher = limited_client(server, 10, BatchSettings(max_latency=math.inf))
        async with publisher:
            futures = [publisher.publish(TOPIC, b"%d" % number) for number in range(100)]
            if stops_first:
                publisher.admin.stop()
        assert all(future.done() for future in futures)
        return [future.result(0) for future in futures]

    assert set(asyncio.run(main())) == {str(number) for number in range(1, 101)}
    assert {data for request in server.requests for data in request} == {
        b"%d" % number for number in range(100)
    }


async def test_a_timed_out_async_publisher_close_fails_messages_that_wait_for_flow_control(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The error and the log have the numbers of unsent and unconfirmed messages."""
    server.gate.clear()
    publisher = limited_client(server)
    futures = [publisher.publish(TOPIC, b"x") for _ in range(3)]
    await asyncio.to_thread(server.wait_for_calls, 1)
    await publisher.close(0.1)
    for future in futures:
        with pytest.raises(PublisherClosed, match="2 messages were not sent, and 1 were sent"):
            await future
    assert publisher.statistics().failed == 3
    # A second close has nothing to wait for.
    await publisher.close()
    assert "2 messages were not sent, and 1 were sent but not confirmed" in caplog.text


async def test_closing_the_async_publisher_does_not_block_the_event_loop(server: Server) -> None:
    """Other tasks run while it waits for the server."""
    server.gate.clear()
    publisher = AsyncPublisherClient(endpoint=server.endpoint)
    future = publisher.publish(TOPIC, b"x")
    closing = asyncio.create_task(publisher.close())
    await asyncio.to_thread(server.wait_for_calls, 1)
    assert not closing.done()
    server.gate.set()
    await closing
    assert await future == "1"


def test_a_publish_future_may_be_awaited_on_two_event_loops(server: Server) -> None:
    """A message belongs to no loop."""
    publisher = AsyncPublisherClient(endpoint=server.endpoint)
    server.gate.clear()
    future = publisher.publish(TOPIC, b"x")
    results: list[str] = []

    async def wait() -> None:
        results.append(await future)

    with on_threads(lambda: asyncio.run(wait()), times=2):
        server.wait_for_calls(1)
        server.gate.set()
    assert results == ["1", "1"]
    asyncio.run(publisher.close())


async def test_the_async_publisher_creates_and_deletes_topics_through_its_admin_client(
    emulator: Emulator,
) -> None:
    """The calls block, so they belong on a thread."""
    async with AsyncPublisherClient(endpoint=emulator.endpoint) as publisher:
        topic = publisher.topic_path("project-1", "invoices")
        await asyncio.to_thread(publisher.admin.create_topic, name=topic)
        assert await publisher.publish(topic, b"x")
