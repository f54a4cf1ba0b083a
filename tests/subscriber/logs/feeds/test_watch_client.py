"""`client.watch`: its arguments, its end with the client, and its form for event loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from pullstream import AsyncSubscriberClient, SubscriberClient, SubscriberClosed, types
from pullstream.feeds import CaughtUp, Frame, Opened, Records, TopicDeleted
from pullstream.logs.feeds.frame_stream import FrameQueue
from pullstream.logs.feeds.watch_reader import NotTaken
from pullstream.rpc.channel_pool import StreamChannel
from pullstream.runtime.lifecycle import SubscriptionState
from pullstream_emulator import Emulator
from pullstream_protocol.clock import SYSTEM_CLOCK
from pullstream_protocol.errors import InvalidArgument, NotFound
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

NEWS = "projects/p/topics/news"
OTHERS_CURSOR = types.Cursor(topic="projects/p/topics/olds", seq=1)


@pytest.fixture
def client(emulator: Emulator) -> Iterator[SubscriberClient]:
    with SubscriberClient(endpoint=emulator.endpoint) as client:
        client.feeds.append(NEWS, ["a", "b"])
        yield client


async def coroutine(frame: Frame) -> None:
    """Do nothing: `watch` does not accept a coroutine."""


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"on_frame": coroutine}, TypeError, "plain function that takes one frame"),
        ({"on_frame": None}, TypeError, "on_frame is None"),
        ({"heartbeat": 0.5}, ValueError, "heartbeat is 0.5; it must be between 1 and 60"),
        ({"heartbeat": 61}, ValueError, "heartbeat is 61"),
        ({"topics": {NEWS: "head"}}, TypeError, "position is 'head'"),
        ({"topics": {NEWS: -1}}, ValueError, "the start position is -1"),
        ({"topics": {NEWS: 2**63}}, ValueError, "it must be between 0 and 9223372036854775807"),
        ({"topics": {NEWS: OTHERS_CURSOR}}, ValueError, "topic projects/p/topics/olds"),
        ({"topics": NEWS}, TypeError, "must map topics to start positions"),
        ({"topics": [NEWS]}, TypeError, "must map topics to start positions"),
        ({"max_messages": "many"}, TypeError, "max_messages"),
    ],
)
def test_the_watch_call_raises_for_wrong_arguments_without_starting_a_thread(
    client: SubscriberClient, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    """No thread is started."""
    given: dict[str, Any] = {"topics": {NEWS: 0}, "on_frame": print, **arguments}
    with pytest.raises(error, match=text):
        client.watch(**given)
    assert not any(thread.name == "pullstream-watch" for thread in threading.enumerate())


def test_a_watch_ends_with_an_error_if_its_plain_handler_returns_a_coroutine(
    client: SubscriberClient,
) -> None:
    """Nothing would run it, so the frame would be lost."""
    watch = client.watch({NEWS: 0}, lambda frame: coroutine(frame))
    with pytest.raises(TypeError, match="pass the async def itself"):
        watch.result(TIMEOUT)


def test_an_argument_error_detected_by_the_broker_is_raised_by_the_future_of_the_watch(
    client: SubscriberClient,
) -> None:
    """An example is an invalid token."""
    with pytest.raises(InvalidArgument, match="resume_token"):
        client.watch({NEWS: 0}, print, resume_token="!").result(TIMEOUT)


def test_closing_a_client_ends_its_watches_and_a_closed_client_refuses_new_watches(
    client: SubscriberClient,
) -> None:
    """The threads of the watches have ended then."""
    watches = [client.watch({NEWS: 0}, lambda frame: None) for _ in range(3)]
    eventually(lambda: all(one.state is SubscriptionState.STREAMING for one in watches))
    client.close()
    assert [one.result() for one in watches] == [True] * 3
    names = {thread.name for thread in threading.enumerate()}
    assert not names & {"pullstream-watch", "pullstream-silence-timer"}
    with pytest.raises(SubscriberClosed):
        client.watch({NEWS: 0}, print)


def test_a_watch_handler_may_close_the_client_of_its_watch(client: SubscriberClient) -> None:
    """The watch ends after the handler."""
    future = client.watch({NEWS: 0}, lambda frame: client.close())
    assert future.result(TIMEOUT)
    assert client.closed


def test_closing_a_client_with_stuck_watch_handlers_takes_no_longer_than_the_time_limit(
    client: SubscriberClient,
) -> None:
    """The number of stuck handlers does not matter."""
    stuck, gate = threading.Semaphore(0), threading.Event()

    def handle(frame: Frame) -> None:
        stuck.release()
        gate.wait(TIMEOUT)

    futures = [client.watch({NEWS: 0}, handle) for _ in range(8)]
    for _ in futures:
        assert stuck.acquire(timeout=TIMEOUT)
    begun = SYSTEM_CLOCK.monotonic()
    client.close(timeout=1.0)
    # One after the other, they would take eight times the limit, and a margin each.
    assert SYSTEM_CLOCK.monotonic() - begun < 8.0
    assert not any(future.done() for future in futures)
    gate.set()
    assert all(future.result(TIMEOUT) for future in futures)


def test_a_watch_uses_the_channel_passed_to_the_client_and_does_not_close_the_channel(
    emulator: Emulator,
) -> None:
    """The channel may have interceptors."""
    with grpc.insecure_channel(emulator.endpoint) as channel:
        seqs: list[int] = []
        with SubscriberClient(channel=channel) as client:
            client.feeds.append(NEWS, ["a"])
            client.watch(
                {NEWS: 0},
                lambda frame: seqs.append(frame.to_seq) if isinstance(frame, Records) else None,
            )
            eventually(lambda: seqs == [1])
        grpc.channel_ready_future(channel).result(TIMEOUT)


def test_all_watches_of_a_client_share_one_connection_that_no_other_call_uses(
    client: SubscriberClient,
) -> None:
    """All watches share one connection, which is opened with the first."""

    def shared() -> grpc.Channel:
        assert isinstance(client._watch_channel, StreamChannel)
        return client._watch_channel.get()

    client.watch({NEWS: 0}, lambda frame: None)
    first = shared()
    client.watch({NEWS: 0}, lambda frame: None)
    assert shared() is first is not client._rpcs.channel


# ---- event loops -------------------------------------------------------------------------------


@pytest.fixture
def loop_client(emulator: Emulator) -> AsyncSubscriberClient:
    return AsyncSubscriberClient(endpoint=emulator.endpoint)


@pytest.mark.usefixtures("client")
async def test_an_async_for_loop_over_a_watch_receives_the_frames_of_the_watch(
    loop_client: AsyncSubscriberClient,
) -> None:
    """Leaving the loop ends the watch."""
    stream = loop_client.watch({NEWS: 0}, max_messages=1)
    frames = aiter(stream)
    kinds = [type(await anext(frames)) for _ in range(4)]
    assert kinds == [Opened, Records, Records, CaughtUp]
    future = stream.future
    assert future.running()
    await frames.aclose()
    assert future.result() is True
    assert "projects" not in future.resume_token
    assert future.resume_token


@pytest.mark.usefixtures("client")
async def test_a_watch_reads_no_further_frame_while_its_async_for_loop_takes_none(
    loop_client: AsyncSubscriberClient,
) -> None:
    """Each frame is read when the loop asks for it. A frame that was not taken is not handled."""
    stream = loop_client.watch({NEWS: 0}, max_messages=1)
    frames = aiter(stream)
    await anext(frames)
    first = await anext(frames)
    assert isinstance(first, Records)
    token = stream.future.resume_token
    await asyncio.sleep(0.05)
    assert stream.future.resume_token == token
    second = await anext(frames)
    assert isinstance(second, Records)
    assert second.to_seq == 2
    await asyncio.to_thread(eventually, lambda: stream.future.resume_token != token)
    await frames.aclose()


async def test_an_async_for_loop_over_a_watch_raises_the_error_that_ends_the_watch(
    loop_client: AsyncSubscriberClient,
) -> None:
    """The future's result raises the same error."""
    with pytest.raises(NotFound):
        await anext(aiter(loop_client.watch({NEWS: 0})))


@pytest.mark.usefixtures("client")
async def test_closing_a_watch_ends_the_async_for_loop_over_the_watch_without_an_error(
    loop_client: AsyncSubscriberClient,
) -> None:
    """The loop ends without an error. Only one loop may use a stream at a time."""
    stream = loop_client.watch({NEWS: 0})
    with pytest.raises(RuntimeError, match="has not started"):
        _ = stream.future
    async for frame in stream:
        if isinstance(frame, Opened):
            with pytest.raises(RuntimeError, match="another iteration"):
                await anext(aiter(stream))
        if isinstance(frame, CaughtUp):
            stream.future.cancel()


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("what", ["client", "watch", "client, blocking"])
async def test_an_async_for_loop_over_a_watch_may_close_the_watch(
    loop_client: AsyncSubscriberClient, what: str
) -> None:
    """The current frame counts as handled then."""
    stream = loop_client.watch({NEWS: 0})
    async for frame in stream:
        assert isinstance(frame, Opened)
        if what == "client":
            await loop_client.close()
        elif what == "watch":
            assert stream.future.close()
        else:
            loop_client.admin.close()
    assert stream.future.resume_token


async def test_a_watch_frame_not_taken_by_the_async_for_loop_is_not_confirmed_as_handled() -> None:
    """A frame came while the loop was left. A reader that resumes by the token must get it."""
    frame_queue = FrameQueue(asyncio.get_running_loop())
    giving = asyncio.create_task(asyncio.to_thread(frame_queue.give, TopicDeleted(NEWS)))
    # The frame is there, and the loop waits no more.
    await frame_queue.mailbox.wait()
    frame_queue.close()
    with pytest.raises(NotTaken):
        await giving


def test_a_watch_whose_handler_does_not_take_a_frame_ends_without_an_error(
    client: SubscriberClient,
) -> None:
    """The watch ends without an error, and the next one begins with this frame."""

    def handle(frame: Frame) -> None:
        if isinstance(frame, Records):
            raise NotTaken

    first = client.watch({NEWS: 0}, handle)
    assert first.result(TIMEOUT) is True
    frames: list[Frame] = []
    client.watch({NEWS: 0}, frames.append, resume_token=first.resume_token)
    eventually(lambda: any(isinstance(frame, CaughtUp) for frame in frames))
    assert [frame.from_seq for frame in frames if isinstance(frame, Records)] == [0]


@pytest.mark.usefixtures("client")
def test_a_watch_ends_when_the_event_loop_of_its_consumer_is_closed(emulator: Emulator) -> None:
    """The event loop ended without leaving the iteration."""
    client = AsyncSubscriberClient(endpoint=emulator.endpoint)
    stream = client.watch({NEWS: 0})
    frames = aiter(stream)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(anext(frames))
    loop.close()
    assert stream.future.result(TIMEOUT) is True
    client.admin.close()
