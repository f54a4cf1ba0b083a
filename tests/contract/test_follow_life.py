"""Life cycle of a follower: its end, its client's end, forks, and streams that keep failing."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest

from pullstream import (
    AsyncSubscriberClient,
    ServerCursor,
    SubscriberClient,
    SubscriberClosed,
    types,
)
from pullstream.follow import (
    CheckpointError,
    CloseReason,
    FellBehind,
    Follower,
    FollowState,
    Record,
)
from pullstream.logs.follow.runner import FollowRunner
from pullstream.logs.follow.settings import FollowRules, FollowSettings
from pullstream.logs.follow.source import Source
from pullstream.logs.follow.stores import NoStore
from pullstream.rpc.rpcs import Rpcs
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import Unavailable
from tests.contract.face import TIMEOUT
from tests.contract.following import TOPIC, Followed, Held, kept_in
from tests.subscriber.program import end_of, start_program
from tests.subscriber.scripted_server import Call, ScriptedServer
from tests.subscriber.streaming.fakes import eventually


def test_closing_a_client_ends_the_followers_of_that_client(here: Followed) -> None:
    """Closing the client waits for the handler."""
    held = Held(here)
    here.append(2)
    follower = here.follow(handler=held)
    here.diary.wait_for(lambda: here.diary.seqs == [1])
    here.client.close(timeout=0)
    assert not follower.done()
    held.gate.set()
    assert follower.result() is True
    assert here.diary.seqs == [1]
    with pytest.raises(SubscriberClosed):
        here.follow()


def test_the_handler_of_a_follower_can_close_the_follower(here: Followed) -> None:
    """The handler completes its record and receives no other."""
    followers: list[Follower] = []

    def handle(record: Record) -> None:
        here.diary.handle(record)
        eventually(lambda: bool(followers))
        assert not followers[0].close()

    here.append(3)
    followers.append(here.follow(handler=handle))
    assert followers[0].result() is True
    assert here.diary.seqs == [1]
    assert followers[0].position.seq == 1
    assert followers[0].state is FollowState.CLOSED


def test_all_threads_of_a_follower_end_with_the_follower(here: Followed) -> None:
    """The handler's thread and the stream's thread end with the follower."""
    here.append(1)
    follower = here.live()
    names = {thread.name for thread in threading.enumerate()}
    assert {"pullstream-follow", "pullstream-follow-stream"} <= names
    assert follower.close()
    names = {thread.name for thread in threading.enumerate()}
    assert not [name for name in names if name.startswith("pullstream-follow")]


def test_a_follower_can_be_closed_while_its_topic_is_created() -> None:
    """Closing returns promptly, even if the server does not answer."""
    asked, answer = threading.Event(), threading.Event()

    def wait(call: Call) -> None:
        asked.set()
        answer.wait(TIMEOUT)

    with ScriptedServer(wait) as server, SubscriberClient(endpoint=server.endpoint) as client:
        follower = client.follow(TOPIC, print, create=True)
        assert asked.wait(TIMEOUT)
        assert follower.close(TIMEOUT / 2)
        answer.set()


def test_a_follower_of_a_server_without_feeds_ends_with_an_error_without_retries(
    foreign: str,
) -> None:
    """Google's service is an example. The call is not retried."""
    with SubscriberClient(endpoint=foreign) as client:
        for checkpoint in (None, ServerCursor("projects/p/cursors/c")):
            follower = client.follow(TOPIC, print, checkpoint=checkpoint)
            assert "a call of pullstream's broker" in str(follower.exception(TIMEOUT))


def test_a_follower_uses_no_cpu_while_it_waits_for_its_first_answer() -> None:
    """The wait costs nothing after the clock has jumped either."""

    class Away(NoStore):
        def open(self, topic: str) -> None:
            raise Unavailable("away")

    class Counted(ManualClock):
        looks = 0

        def timeout(self, deadline: float | None) -> float | None:
            self.looks += 1
            return super().timeout(deadline)

    clock = Counted()
    settings = FollowSettings(TOPIC)
    source = Source(Rpcs(grpc.insecure_channel("localhost:1")), settings)
    follow = FollowRunner(source, Away(), print, None, None, settings, clock)
    follow.start()
    eventually(lambda: clock.looks == 1)
    clock.advance(0.001)
    eventually(lambda: clock.looks >= 2)
    threading.Event().wait(0.05)
    assert clock.looks < 10
    follow.stop()
    assert follow.future.result(TIMEOUT) is True


def test_an_exception_of_an_event_callback_is_logged_and_does_not_end_the_follower(
    here: Followed,
) -> None:
    """The failure of the callback is logged."""

    def tell(event: object) -> None:
        here.diary.tell(event)  # type: ignore[arg-type]
        raise ValueError("tell")

    here.append(1)
    here.live(on_event=tell)
    here.append(1)
    here.diary.wait_for(lambda: here.diary.seqs == [1, 2])


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": 3},
        {"handler": None},
        {"handler": asyncio.sleep},
        {"after": -1},
        {"after": "soon"},
        {"after": 2**63},
        {"after": types.Cursor(topic=TOPIC + "-2", seq=1)},
        {"on_event": 1},
        {"checkpoint": 5},
        {"filter": None},
        {"exclude_node": 5},
        {"checkpoint_every": 0},
        {"checkpoint_seconds": -1},
        {"live_buffer": 0},
        {"give_up_after": 0},
    ],
)
def test_invalid_arguments_of_the_follow_call_raise_before_the_follower_starts(
    here: Followed, wrong: dict[str, Any]
) -> None:
    """The error names the argument, and the follower does not start."""
    arguments: dict[str, Any] = {"topic": TOPIC, "handler": print, **wrong}
    name = next(iter(wrong)).removeprefix("after") or "the start position"
    with pytest.raises((TypeError, ValueError), match=name):
        here.client.follow(**arguments)
    assert here.wire.calls == []


# Forks a child that waits for the end of its standard input, so that it outlives the follower.
FORKING = """
import os, sys, threading
from pullstream import ForkedProcess, SubscriberClient

topic, path = {topic!r}, {path!r}
client = SubscriberClient(endpoint=sys.argv[1])
seen = []
came = threading.Semaphore(0)

def handle(record):
    seen.append(record.seq)
    came.release()

follower = client.follow(topic, handle, checkpoint=path)
assert came.acquire(timeout=20)
reader, writer = os.pipe()
child = os.fork()
if not child:
    os.close(writer)
    refused = 0
    again = lambda: client.follow(topic, handle)
    for use in (follower.close, follower.result, follower.statistics, again):
        try:
            use()
        except ForkedProcess:
            refused += 1
    os.read(reader, 1)
    os._exit(refused)
client.feeds.append(topic, ["two"])
assert came.acquire(timeout=20)
assert follower.close(20)
follower = client.follow(topic, handle, checkpoint=path)
client.feeds.append(topic, ["three"])
assert came.acquire(timeout=20)
os.close(writer)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), seen)
"""


def test_calling_a_follower_of_the_parent_process_in_a_forked_child_raises_an_error(
    here: Followed, tmp_path: Path
) -> None:
    """The child's calls raise ForkedProcess, and the parent's follower continues.

    The child does not hold the lock of the follower's name.
    """
    here.append(1)
    program = FORKING.format(topic=TOPIC, path=str(tmp_path / "positions.db"))
    with start_program(program, here.emulator.endpoint) as running:
        printed, errors = running.communicate(timeout=60)
    assert (running.returncode, printed) == (0, "4 [1, 2, 3]\n"), errors


def test_any_exception_of_a_followers_handler_ends_the_follower(here: Followed) -> None:
    """Exceptions that do not derive from Exception end it, too. The future is always done."""

    def handle(record: Record) -> None:
        raise SystemExit(3)

    here.append(1)
    follower = here.follow(handler=handle)
    assert isinstance(follower.exception(TIMEOUT), SystemExit)
    assert here.diary.closed.reason is CloseReason.HANDLER_ERROR


def test_a_follower_saves_its_position_at_the_exit_of_the_interpreter(
    here: Followed, tmp_path: Path
) -> None:
    """The interpreter's exit ends the follower in an orderly way and quickly."""
    here.append(3)
    program = f"""
import sys, threading
from pullstream import SubscriberClient

caught_up = threading.Event()
client = SubscriberClient(endpoint=sys.argv[1])
client.follow(
    {TOPIC!r}, lambda record: None, checkpoint={str(tmp_path / "positions.db")!r},
    checkpoint_seconds=1000, on_event=lambda event: caught_up.set(),
)
caught_up.wait()
"""
    _, errors, code = end_of(start_program(program, here.emulator.endpoint))
    assert (code, errors) == (0, "")
    assert kept_in(tmp_path / "positions.db")[TOPIC] == 3


def test_a_follower_replaces_a_stream_that_sends_no_heartbeats_c1_11(
    here: Followed,
) -> None:
    """Without heartbeats the follower reports FellBehind and opens another stream."""
    here.append(1)
    rules = FollowRules(silence_limit=0.2)
    settings = FollowSettings(TOPIC, rules=rules)
    follow = FollowRunner(
        Source(here.client._rpcs, settings),
        NoStore(),
        here.diary.handle,
        here.diary.tell,
        None,
        settings,
    )
    follow.start()
    here.diary.wait_for_turn(3)
    follow.stop()
    follow.future.result(TIMEOUT)
    fell = here.diary.events[1]
    assert isinstance(fell, FellBehind)
    assert fell.cause == "silence"


def test_a_follower_falls_back_to_polling_after_three_failed_streams_in_a_minute_c1_11(
    here: Followed,
) -> None:
    """After three failures within a minute it polls.

    Records still arrive, and the user is notified.
    """
    here.append(1)
    follower = here.live()
    for fallbacks in (1, 2, 3):
        eventually(lambda: follower.state is FollowState.LIVE)
        here.wire.cut_stream()
        here.diary.wait_for_turn(1 + 2 * fallbacks)
    assert follower.state is FollowState.POLL
    here.append(2)
    here.diary.wait_for(lambda: here.diary.seqs == [1, 2, 3])
    assert here.diary.turns == ["CaughtUp", "FellBehind"] * 3 + ["CaughtUp"]
    assert follower.close()


def test_a_follower_of_a_server_that_never_answers_ends_after_the_give_up_after_time_c1_14(
    here: Followed,
) -> None:
    """No server listens. `give_up_after` also ends a follower before its first answer."""
    here.emulator.stop()
    follower = here.follow(give_up_after=0.2)
    assert isinstance(follower.exception(TIMEOUT), Unavailable)
    assert here.diary.closed.reason is CloseReason.SERVER_GONE
    assert [type(event).__name__ for event in here.diary.events] == ["Closed"]


def test_a_follower_may_start_at_the_position_returned_by_a_feed_read_with_a_filter(
    here: Followed,
) -> None:
    """A read returns such a position. The follower continues after that read."""
    here.append(1, tag="a")
    here.append(1, tag="b")
    here.append(1, tag="a")
    here.live(types.Position(after_seq=1, filter='attributes.tag = "a"'))
    assert here.diary.seqs == [3]


@pytest.mark.parametrize("what", ["follower", "client", "client, on a thread"])
async def test_the_coroutine_handler_of_a_follower_can_close_the_follower(
    here: Followed, what: str
) -> None:
    """The close does not wait for the coroutine, which would be a deadlock.

    The coroutine completes its record and receives no other.
    """
    seen: list[int] = []
    here.append(3)
    client = AsyncSubscriberClient(endpoint=here.emulator.endpoint)
    followers: list[Follower] = []

    async def close() -> None:
        if what == "follower":
            assert not followers[0].close()
        elif what == "client":
            await client.close()
        else:
            await asyncio.to_thread(client.admin.close)

    async def handle(record: Record) -> None:
        await asyncio.gather(close())
        seen.append(record.seq)

    followers.append(client.follow(TOPIC, handle))
    assert await asyncio.wait_for(followers[0], TIMEOUT) is True
    await client.close()
    assert seen == [1]


async def save_later(value: object) -> None:
    """Do nothing."""


def test_a_follower_ends_with_an_error_if_its_plain_handler_returns_a_coroutine(
    here: Followed,
) -> None:
    """Nothing would run it, so the record, or its checkpoint, would be lost."""
    here.append(1)
    checkpoint: dict[str, Any] = {"checkpoint": lambda checkpoint: save_later(checkpoint)}
    with SubscriberClient(endpoint=here.emulator.endpoint) as client:
        follower = client.follow(TOPIC, lambda record: save_later(record))
        with pytest.raises(TypeError, match="pass the async def itself"):
            follower.result(TIMEOUT)
        follower = client.follow(TOPIC, here.diary.handle, checkpoint_every=1, **checkpoint)
        with pytest.raises(CheckpointError, match="pass the async def itself"):
            follower.result(TIMEOUT)
        for wrong in ({"checkpoint": save_later}, {"on_event": save_later}):
            refused: dict[str, Any] = wrong
            with pytest.raises(TypeError, match="plain function"):
                client.follow(TOPIC, here.diary.handle, **refused)


async def test_coroutine_handlers_of_a_follower_run_one_record_at_a_time(here: Followed) -> None:
    """The coroutine handles one record at a time, and its exception ends the follower."""
    seen: list[int] = []
    here.append(5)
    loop = asyncio.get_running_loop()

    async def handle(record: Record) -> None:
        assert asyncio.get_running_loop() is loop
        await asyncio.sleep(0)
        seen.append(record.seq)
        if record.seq == 3:
            raise ValueError("three")

    async with AsyncSubscriberClient(endpoint=here.emulator.endpoint) as client:
        with pytest.raises(TypeError, match="handler"):
            client.follow(TOPIC, print)  # type: ignore[arg-type]
        follower = client.follow(TOPIC, handle)
        with pytest.raises(ValueError, match="three"):
            await follower
    assert seen == [1, 2, 3]
