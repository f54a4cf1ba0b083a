"""Asynchronous callbacks, the stream of the asynchronous client, and statistics."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import threading
from collections.abc import AsyncGenerator, Callable, Sequence

import pytest

from pullstream import (
    AcknowledgeStatus,
    AsyncSubscriberClient,
    CoroutineScheduler,
    FlowControl,
    Hooks,
    Message,
    MessageBatch,
    SubscriptionState,
)
from pullstream.futures import ShutdownMode
from pullstream_protocol.errors import PermissionDenied, Unavailable
from tests.subscriber.behaviour.stage import SUBSCRIPTION, TOPIC, Gate, Log, Stage, keep, stage
from tests.subscriber.streaming.fakes import TIMEOUT, eventually
from tests.threads import on_threads

pytestmark = pytest.mark.subscription(enable_message_ordering=True)


@pytest.fixture
def client(here: Stage) -> AsyncSubscriberClient:
    return AsyncSubscriberClient(endpoint=here.emulator.endpoint)


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def soon(condition: Callable[[], bool]) -> None:
    """Call `eventually` without blocking the running loop."""
    await asyncio.to_thread(eventually, condition)


async def take(messages: AsyncGenerator[Message, None], count: int) -> list[Message]:
    return [await anext(messages) for _ in range(count)]


# ---- asynchronous callbacks --------------------------------------------------------------------


class PlainCall:
    def __call__(self, message: Message) -> None: ...


@pytest.mark.parametrize(
    "callback", [keep, PlainCall(), functools.partial(keep), lambda message: anext(message)]
)
async def test_async_subscribe_refuses_a_plain_function_as_callback(
    here: Stage,
    callback: Callable[[Message], None],
    client: AsyncSubscriberClient,
) -> None:
    """The error says what to pass. The official client has no such method."""
    with pytest.raises(TypeError, match=r"a plain function, .*; pass an async def"):
        client.subscribe(SUBSCRIPTION, callback)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"a plain function, .*; pass an async def"):
        client.subscribe_batch(SUBSCRIPTION, callback)  # type: ignore[arg-type]


async def test_async_batch_callbacks_run_concurrently_on_the_running_event_loop(
    here: Stage, client: AsyncSubscriberClient
) -> None:
    """Each list has up to `max_messages`. Two of them run at the same time."""
    lengths: list[int] = []
    threads: set[int] = set()
    both = asyncio.Event()

    async def handle(messages: MessageBatch) -> None:
        threads.add(threading.get_ident())
        lengths.append(len(messages))
        if len(lengths) == 2:
            both.set()
        await both.wait()
        messages.ack()

    future = client.subscribe_batch(
        SUBSCRIPTION, handle, max_messages=10, max_latency=600, max_tasks=2
    )
    here.publish(*numbers(40))
    await soon(lambda: here.backlog == 0)
    assert lengths == [10, 10, 10, 10]
    assert threads == {threading.get_ident()}
    future.cancel()
    assert await future is True


async def test_async_subscribe_refuses_invalid_batch_limits(
    here: Stage, client: AsyncSubscriberClient
) -> None:
    """The checks are those of the synchronous client. No task is started."""
    with pytest.raises(ValueError, match="max_messages is 0; it must be between 1 and"):
        client.subscribe_batch(SUBSCRIPTION, keep, max_messages=0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_tasks is 0; it must be"):
        client.subscribe_batch(SUBSCRIPTION, keep, max_tasks=0)  # type: ignore[arg-type]


@pytest.mark.parametrize("max_workers", [None, 3])
def test_async_callbacks_run_concurrently_up_to_flow_control_or_the_number_of_workers(
    here: Stage, max_workers: int | None
) -> None:
    """The limit is flow control, or the number of workers that the user sets."""
    running, most = 0, 0

    async def handle(message: Message) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002)
        running -= 1
        message.ack()

    here.publish(*numbers(60))
    here.client.subscribe(
        SUBSCRIPTION, handle, FlowControl(max_messages=20), max_workers=max_workers
    )
    eventually(lambda: here.backlog == 0)
    assert most == (max_workers or 20)


@pytest.mark.parametrize("mode", ["drain", "nack", None])
async def test_an_async_callback_may_close_its_client_without_a_deadlock(
    here: Stage, mode: ShutdownMode | None, client: AsyncSubscriberClient
) -> None:
    """The shutdown waits for the callback, so the callback's close does not wait."""
    here.publish(b"x")

    async def handle(message: Message) -> None:
        await client.close(mode=mode)
        message.ack()

    future = client.subscribe(SUBSCRIPTION, handle, await_callbacks_on_shutdown=True)
    assert await future is True
    if mode != "nack":
        assert here.backlog == 0


def test_async_callbacks_handle_the_messages_of_an_ordering_key_in_order(here: Stage) -> None:
    """Each callback begins after the previous one has returned.

    A failed message is redelivered in order.
    """
    seen: list[int] = []

    async def handle(message: Message) -> None:
        number = int(message.data)
        seen.append(number)
        await asyncio.sleep(0)
        if seen == [0, 1, 2]:
            raise ValueError("on purpose")
        message.ack()

    here.publish(*numbers(6), key="k")
    future = here.client.subscribe(SUBSCRIPTION, handle)
    eventually(lambda: here.backlog == 0)
    assert seen == [0, 1, 2, 2, 3, 4, 5]
    assert future.statistics().callback_errors == 1


async def test_async_callbacks_run_on_the_users_event_loop_and_closing_does_not_stop_the_loop(
    here: Stage,
) -> None:
    """Callbacks run on the loop's thread with its other tasks."""
    done, threads = asyncio.Event(), set[int]()

    async def handle(message: Message) -> None:
        threads.add(threading.get_ident())
        message.ack()
        done.set()

    scheduler = CoroutineScheduler(asyncio.get_running_loop())
    future = here.client.subscribe(SUBSCRIPTION, handle, scheduler=scheduler)
    here.publish(b"x")
    await done.wait()
    await soon(lambda: here.backlog == 0)
    assert await asyncio.to_thread(future.close, TIMEOUT)
    assert threads == {threading.get_ident()}


def test_a_draining_close_of_an_async_subscription_waits_for_running_callbacks(here: Stage) -> None:
    """Running callbacks finish and their acks succeed. Messages that wait are returned."""
    loop_ready: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def handle(message: Message) -> None:
        go_on = asyncio.Event()
        loop_ready.append((asyncio.get_running_loop(), go_on))
        await go_on.wait()
        message.ack()

    future = here.client.subscribe(SUBSCRIPTION, handle, max_workers=1)
    here.publish(*numbers(3))
    eventually(lambda: len(loop_ready) == 1 and future.statistics().waiting == 2)
    with on_threads(future.close):
        eventually(lambda: len(here.free()) == 2)
        assert future.running()
        loop, go_on = loop_ready[0]
        loop.call_soon_threadsafe(go_on.set)
    assert future.result(timeout=0) is True
    assert here.backlog == 2


# ---- async for ---------------------------------------------------------------------------------


async def test_async_message_iteration_yields_every_message_and_their_acks_succeed(
    here: Stage, client: AsyncSubscriberClient
) -> None:
    """A loop settles the messages one by one."""
    here.publish(*numbers(50))
    seen = set()
    async for message in client.stream(SUBSCRIPTION):
        seen.add(message.data)
        ack = message.ack_with_response()
        assert await asyncio.wrap_future(ack) is AcknowledgeStatus.SUCCESS
        if len(seen) == 50:
            break
    assert seen == set(numbers(50))
    assert here.backlog == 0


class LeaseIsOver(Hooks):
    """Ends the lease of the first message, as if the process had been stopped for a minute."""

    def __init__(self) -> None:
        self.lost: list[bytes] = []
        self._is_first = True

    def wrap(self, subscription: str, callback: Callable[[Message], None]) -> Callable[..., None]:
        def late(message: Message) -> None:
            if self._is_first:
                message.batch.lease_ends = 0.0
            self._is_first = False
            callback(message)

        return late

    def lease_lost(self, subscription: str, messages: Sequence[Message], why: str) -> None:
        self.lost += [message.data for message in messages]


async def test_async_message_iteration_skips_a_message_whose_lease_has_ended(
    here: Stage, client: AsyncSubscriberClient
) -> None:
    """The message is delivered again, here as a message of a key at once."""
    hooks = LeaseIsOver()
    here.publish(b"a", key="k")
    messages = aiter(client.stream(SUBSCRIPTION, hooks=hooks))
    (message,) = await take(messages, 1)
    assert (message.data, hooks.lost) == (b"a", [b"a"])
    message.ack()
    await messages.aclose()


async def test_async_message_iteration_without_acks_stops_at_the_flow_control_limit(
    here: Stage,
    client: AsyncSubscriberClient,
) -> None:
    """Flow control counts settled messages instead of messages taken from the stream."""
    here.publish(*numbers(20))
    stream = client.stream(SUBSCRIPTION, FlowControl(max_messages=5))
    messages = aiter(stream)
    taken = await take(messages, 5)
    following = asyncio.ensure_future(anext(messages))
    await soon(lambda: stream.future.statistics().load == 1.0)
    assert len(here.free()) == 15
    assert not following.done()
    for message in taken:
        message.ack()
    await following
    assert stream.future.statistics().received <= 10
    await messages.aclose()


async def test_leaving_an_async_iteration_returns_unsettled_messages_to_the_server(
    here: Stage, client: AsyncSubscriberClient
) -> None:
    """Both the messages that were handed out and the others are returned at once."""
    here.publish(*numbers(10))
    stream = client.stream(SUBSCRIPTION)
    messages = aiter(stream)
    first, _ = await take(messages, 2)
    first.ack()
    await messages.aclose()
    assert stream.future.done()
    assert len(here.free()) == 9


async def test_a_break_in_an_async_iteration_returns_unsettled_messages_to_the_server(
    here: Stage, client: AsyncSubscriberClient
) -> None:
    """The return comes soon after, when Python closes the iterator of the loop."""
    here.publish(*numbers(10))
    async for message in client.stream(SUBSCRIPTION):
        message.ack()
        break
    await soon(lambda: len(here.free()) == 9)


async def test_an_error_in_an_async_iteration_returns_unsettled_messages_to_the_server(
    here: Stage, client: AsyncSubscriberClient
) -> None:
    """The loop raises the user's own exception."""

    async def consume(client: AsyncSubscriberClient) -> None:
        stream = client.stream(SUBSCRIPTION)
        messages = aiter(stream)
        try:
            async for _ in messages:
                raise ValueError("on purpose")
        finally:
            await messages.aclose()

    here.publish(*numbers(3))
    with pytest.raises(ValueError, match="on purpose"):
        await consume(client)
    assert len(here.free()) == 3


@pytest.mark.parametrize("after_messages", [False, True])
async def test_an_async_message_iteration_raises_the_terminal_error_of_its_subscription(
    here: Stage,
    after_messages: bool,
    client: AsyncSubscriberClient,
) -> None:
    """The loop raises a terminal error and does not notice transient ones."""
    messages = aiter(client.stream(SUBSCRIPTION))
    if after_messages:
        here.publish(b"1")
        (await anext(messages)).ack()
        here.faults.abort_streams(Unavailable("away"))
        here.publish(b"2")
        (await anext(messages)).ack()
    here.faults.error("StreamingPull", PermissionDenied("not yours"))
    here.faults.abort_streams(Unavailable("away"))
    with pytest.raises(PermissionDenied, match="not yours"):
        await anext(messages)


async def test_async_message_iteration_ends_without_error_when_the_subscription_is_closed(
    here: Stage,
    client: AsyncSubscriberClient,
) -> None:
    """The future or the closing of the client ends the loop."""
    stream = client.stream(SUBSCRIPTION)
    messages = aiter(stream)
    here.publish(b"1")
    (await anext(messages)).ack()
    stream.future.cancel()
    with pytest.raises(StopAsyncIteration):
        await anext(messages)


async def test_async_message_iteration_yields_one_message_of_an_ordering_key_at_a_time(
    here: Stage,
    client: AsyncSubscriberClient,
) -> None:
    """Messages of a key come in order, even after a nack. Other messages do not wait."""
    here.publish(*numbers(3), key="k")
    messages = aiter(client.stream(SUBSCRIPTION))
    first = await anext(messages)
    here.publish(b"other", key="l")
    other = await anext(messages)
    assert (first.data, other.data) == (b"0", b"other")
    other.ack()
    first.ack()
    second = await anext(messages)
    second.nack()
    rest = []
    for _ in range(2):
        message = await anext(messages)
        rest.append(message.data)
        message.ack()
    assert (second.data, rest) == (b"1", [b"1", b"2"])
    await messages.aclose()


# ---- statistics --------------------------------------------------------------------------------


def test_subscription_statistics_are_exact_during_callbacks_and_at_the_end(here: Stage) -> None:
    """The numbers are right while one worker is busy, and at the end."""
    gate = Gate(lambda m: m.ack() if m.data.startswith(b"ack") else m.nack(delay=600))
    future = here.client.subscribe(SUBSCRIPTION, gate, FlowControl(max_messages=10), max_workers=1)
    eventually(lambda: future.state is SubscriptionState.STREAMING)
    here.faults.abort_streams(Unavailable("away"))
    eventually(lambda: future.statistics().reopened == 1)
    here.publish(b"ack 1", b"ack 2", b"nack", key="k")
    gate.wait_for(1)
    here.publish(b"ack 3", b"ack 4")
    eventually(lambda: future.statistics().received == 5)
    now = future.statistics()
    assert (now.leased, now.running, now.held, now.waiting) == (5, 1, 2, 2)
    assert now.load == 0.5
    assert now.leased_bytes > 0
    assert (now.acked, now.nacked, now.latency.p99) == (0, 0, 0.0)
    gate.open(5)
    eventually(lambda: future.statistics().leased == 0)
    assert future.close(timeout=TIMEOUT)
    end = future.statistics()
    assert (end.received, end.acked, end.nacked, end.failed) == (5, 4, 1, 0)
    assert (end.leased, end.leased_bytes, end.held, end.waiting, end.running) == (0, 0, 0, 0, 0)
    assert 0 < end.latency.p50 <= end.latency.p90 <= end.latency.p99
    assert end.state is SubscriptionState.CLOSED


def test_the_statistics_object_of_a_subscription_is_an_immutable_snapshot(here: Stage) -> None:
    """The statistics object is immutable."""
    log = Log(keep)
    future = here.client.subscribe(SUBSCRIPTION, log)
    before = future.statistics()
    here.publish(b"x")
    log.wait_for(1)
    assert before.received == 0
    assert future.statistics().received == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.received = 1  # type: ignore[misc]


def test_the_statistics_count_redeliveries_if_the_server_reports_delivery_attempts() -> None:
    """The server reports delivery attempts with a dead-letter policy."""
    policy = {"dead_letter_topic": TOPIC, "max_delivery_attempts": 5}
    with stage(dead_letter_policy=policy) as here:
        log = Log(lambda m: m.nack() if (m.delivery_attempt or 0) < 3 else m.ack())
        future = here.client.subscribe(SUBSCRIPTION, log)
        here.publish(b"x")
        log.wait_for(3)
        eventually(lambda: here.backlog == 0)
        assert future.statistics().redelivered == 2
