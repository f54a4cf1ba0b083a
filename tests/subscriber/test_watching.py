"""`client.watch`: its arguments, its life with the client, and its form for event loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from emulator import Emulator
from protocol.errors import InvalidArgument, NotFound
from subscriber import AsyncSubscriberClient, SubscriberClient, SubscriberClosed
from subscriber.feeds import CaughtUp, Frame, Opened, Records
from subscriber.streaming.state import SubscriptionState
from tests.subscriber.streaming.fakes import PATIENCE, eventually

NEWS = "projects/p/topics/news"


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator() as emulator:
        yield emulator


@pytest.fixture
def client(emulator: Emulator) -> Iterator[SubscriberClient]:
    with SubscriberClient(endpoint=emulator.endpoint) as client:
        client.append(NEWS, ["a", "b"])
        yield client


async def coroutine(frame: Frame) -> None:
    """Not for `watch`."""


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"on_frame": coroutine}, TypeError, "plain function of one frame"),
        ({"on_frame": None}, TypeError, "on_frame is None"),
        ({"heartbeat": 0.5}, ValueError, "heartbeat is 0.5; it must be between 1 and 60"),
        ({"heartbeat": 61}, ValueError, "heartbeat is 61"),
        ({"topics": {NEWS: "head"}}, TypeError, "not 'head'"),
        ({"topics": {NEWS: -1}}, ValueError, "a start is -1"),
        ({"max_messages": "many"}, TypeError, "max_messages"),
    ],
)
def test_wrong_arguments_are_refused_at_once(
    client: SubscriberClient, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    """Nothing runs then."""
    given: dict[str, Any] = {"topics": {NEWS: 0}, "on_frame": print, **arguments}
    with pytest.raises(error, match=text):
        client.watch(**given)
    assert not any(thread.name == "pullstream-watch" for thread in threading.enumerate())


def test_what_only_the_broker_knows_to_be_wrong_is_the_result(client: SubscriberClient) -> None:
    """A token that is none, say."""
    with pytest.raises(InvalidArgument, match="resume_token"):
        client.watch({NEWS: 0}, print, resume_token="!").result(PATIENCE)


def test_closing_the_client_closes_its_watches(client: SubscriberClient) -> None:
    """Their threads have ended then, and it takes no new ones."""
    watches = [client.watch({NEWS: 0}, lambda frame: None) for _ in range(3)]
    eventually(lambda: all(one.state is SubscriptionState.STREAMING for one in watches))
    client.close()
    assert [one.result() for one in watches] == [True] * 3
    names = {thread.name for thread in threading.enumerate()}
    assert not names & {"pullstream-watch", "pullstream-watchdog"}
    with pytest.raises(SubscriberClosed):
        client.watch({NEWS: 0}, print)


def test_the_client_may_be_closed_in_a_handler(client: SubscriberClient) -> None:
    """The watch ends when the handler has."""
    future = client.watch({NEWS: 0}, lambda frame: client.close())
    assert future.result(PATIENCE)
    assert client.closed


def test_a_channel_of_the_callers_own_is_used_and_left_open(emulator: Emulator) -> None:
    """Whatever interceptors it has."""
    with grpc.insecure_channel(emulator.endpoint) as channel:
        seqs: list[int] = []
        with SubscriberClient(channel=channel) as client:
            client.append(NEWS, ["a"])
            client.watch(
                {NEWS: 0},
                lambda frame: seqs.append(frame.to_seq) if isinstance(frame, Records) else None,
            )
            eventually(lambda: seqs == [1])
        grpc.channel_ready_future(channel).result(PATIENCE)


def test_watches_have_a_connection_that_is_not_the_other_calls(
    client: SubscriberClient,
) -> None:
    """One for all of them, opened with the first."""
    assert client._watch_channel is None
    client.watch({NEWS: 0}, lambda frame: None)
    first = client._watch_channel
    client.watch({NEWS: 0}, lambda frame: None)
    assert client._watch_channel is first is not client._channel


# ---- event loops -------------------------------------------------------------------------------


def run(main: Any, emulator: Emulator) -> None:
    async def inside() -> None:
        async with AsyncSubscriberClient(endpoint=emulator.endpoint) as client:
            await asyncio.wait_for(main(client), PATIENCE)

    asyncio.run(inside())


@pytest.mark.usefixtures("client")
def test_frames_come_to_an_async_for(emulator: Emulator) -> None:
    """Leaving it ends the watch."""

    async def main(client: AsyncSubscriberClient) -> None:
        stream = client.watch({NEWS: 0}, max_messages=1)
        frames = aiter(stream)
        kinds = [type(await anext(frames)) for _ in range(4)]
        assert kinds == [Opened, Records, Records, CaughtUp]
        future = stream.future
        assert future.running()
        await frames.aclose()
        assert future.result() is True
        assert "projects" not in future.resume_token
        assert future.resume_token

    run(main, emulator)


@pytest.mark.usefixtures("client")
def test_an_async_for_that_takes_nothing_stops_the_reader(emulator: Emulator) -> None:
    """The next frame is read when it is asked for; one that was not does not count as handled."""

    async def main(client: AsyncSubscriberClient) -> None:
        stream = client.watch({NEWS: 0}, max_messages=1)
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

    run(main, emulator)


def test_what_ends_a_watch_is_raised_by_the_loop(emulator: Emulator) -> None:
    """As by the future's result."""

    async def main(client: AsyncSubscriberClient) -> None:
        with pytest.raises(NotFound):
            await anext(aiter(client.watch({NEWS: 0})))

    run(main, emulator)


@pytest.mark.usefixtures("client")
def test_a_watch_that_is_closed_elsewhere_ends_the_loop(emulator: Emulator) -> None:
    """Well. And a stream is for one loop at a time."""

    async def main(client: AsyncSubscriberClient) -> None:
        stream = client.watch({NEWS: 0})
        with pytest.raises(RuntimeError, match="has not begun"):
            _ = stream.future
        async for frame in stream:
            if isinstance(frame, Opened):
                with pytest.raises(RuntimeError, match="is being iterated over"):
                    await anext(aiter(stream))
            if isinstance(frame, CaughtUp):
                stream.future.cancel()

    run(main, emulator)
