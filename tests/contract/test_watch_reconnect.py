"""`client.watch` after a broken stream: no record is lost, and none comes twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from pullstream import SubscriberClient, WatchFuture
from pullstream.feeds import Opened
from pullstream.logs.feeds.resumable_watch import ResumableWatch
from pullstream.logs.feeds.watch_reader import WatchReader, frame_calls
from pullstream.runtime.lifecycle import SubscriptionState
from pullstream_emulator import Emulator
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.rpcs import BY_METHOD
from tests.contract.watching import Frames, Held
from tests.subscriber.streaming.fakes import eventually

NEWS = "projects/p/topics/news"
OLDS = "projects/p/topics/olds"


def append(emulator: Emulator, topic: str, *data: str) -> None:
    """Append a record over a new connection."""
    with SubscriberClient(endpoint=emulator.endpoint) as client:
        client.feeds.append(topic, data)


@contextmanager
def watched(emulator: Emulator, frames: Frames) -> Iterator[WatchFuture]:
    """Yield a started watch of the tails of two feeds."""
    with SubscriberClient(endpoint=emulator.endpoint) as client:
        client.feeds.put(NEWS)
        client.feeds.put(OLDS)
        future = client.watch({NEWS: "tail", OLDS: "tail"}, frames)
        frames.wait_for_caught_up(2)
        yield future
        assert future.state is SubscriptionState.STREAMING
        assert future.close()


def test_a_client_watch_resumes_its_session_after_a_connection_outage_c2_24() -> None:
    """The session is the same.

    The watch delivers the records appended meanwhile and notifies the handler.
    """
    frames = Frames()
    with Emulator() as emulator, watched(emulator, frames):
        append(emulator, NEWS, "1", "2")
        frames.wait_for_seqs(1, 2, topic=NEWS)
        emulator.stop()
        emulator.start()
        append(emulator, NEWS, "3")
        append(emulator, OLDS, "1")
        frames.wait_for_seqs(1, 2, 3, topic=NEWS)
        frames.wait_for_seqs(1, topic=OLDS)
        assert len(frames.of(Opened)) == 2


def test_a_client_watch_opens_a_new_session_after_a_broker_restart_c2_24(tmp_path: Path) -> None:
    """A restart on a data directory ends all sessions.

    A watch that has handled frames starts another session after the last one of them. A watch that
    has handled none starts at its original positions.
    """
    held = Held()
    frames, slow = Frames(), Frames(held)
    with (
        Emulator(data_dir=tmp_path) as emulator,
        watched(emulator, frames),
        watched(emulator, slow),
    ):
        append(emulator, NEWS, "1")
        append(emulator, OLDS, "1")
        frames.wait_for_seqs(1, topic=NEWS)
        frames.wait_for_seqs(1, topic=OLDS)
        held.wait()
        emulator.stop()
        emulator.start()
        append(emulator, NEWS, "2", "3")
        held.release()
        for each in (frames, slow):
            each.wait_for_seqs(1, 2, 3, topic=NEWS)
            each.wait_for_seqs(1, topic=OLDS)
            assert len(each.of(Opened)) == 2


@contextmanager
def timed(emulator: Emulator, clock: ManualClock, frames: Frames) -> Iterator[WatchReader]:
    """Yield a watch of one feed. Its client uses the broker's clock; heartbeats come after 15 s."""
    append(emulator, NEWS, "1")
    with grpc.insecure_channel(emulator.endpoint) as channel:
        spec = feeds.WatchSpec()
        spec.topics[NEWS].after_seq = 0
        watch = WatchReader(
            frame_calls(channel), ResumableWatch(spec), frames, heartbeat=15, clock=clock
        )
        watch.start()
        frames.wait_for_caught_up()
        yield watch
        assert watch.future.close()


def test_a_client_watch_opens_a_new_stream_after_two_missing_heartbeats_c2_22(
    clock: ManualClock,
) -> None:
    """The broker runs, but its frames do not arrive.

    After the reconnection they arrive on another stream.
    """
    frames = Frames()
    with (
        Emulator(clock=clock, relay=True) as emulator,
        timed(emulator, clock, frames) as watch,
    ):
        eventually(lambda: waits_since(watch, clock.monotonic()))
        hole = emulator.faults.black_hole()
        clock.advance(29)
        assert watch.state is SubscriptionState.STREAMING
        clock.advance(1)
        eventually(lambda: watch.state is SubscriptionState.RECONNECTING)
        hole.lift()
        clock.advance(2)
        append(emulator, NEWS, "2")
        frames.wait_for_seqs(1, 2)
        assert len(frames.of(Opened)) == 2


def test_a_client_watch_keeps_an_idle_stream_open_while_heartbeats_arrive_c2_22(
    clock: ManualClock,
) -> None:
    """Each heartbeat restarts the watchdog's timer. The handler is not called."""
    frames = Frames()
    with Emulator(clock=clock) as emulator, timed(emulator, clock, frames) as watch:
        told = len(frames.all)
        for _ in range(4):
            eventually(lambda: waits_since(watch, clock.monotonic()))
            clock.advance(15)
        assert watch.state is SubscriptionState.STREAMING
        assert len(frames.all) == told


def waits_since(watch: WatchReader, moment: float) -> bool:
    """Return whether something has arrived at this moment, and the watch waits for more."""
    return watch._silence_timer._waiting_since == moment


def test_a_client_watch_resumes_after_its_handler_was_blocked_for_a_long_time_c2_23(
    emulator: Emulator, clock: ManualClock
) -> None:
    """After 30 s the broker ends its stream. Every number is received or reported lost."""
    held = Held()
    frames = Frames(held)
    with SubscriberClient(endpoint=emulator.endpoint) as client:
        client.feeds.put(NEWS, {"cap_records": 10})
        future = client.watch({NEWS: 0}, frames)
        frames.wait_for_caught_up()
        for _ in range(60):
            client.feeds.append(NEWS, ["x" * 20_000] * 10)
        held.wait()
        clock.advance(5)
        clock.advance(25)
        eventually(lambda: client.feeds.get(NEWS).watchers == 0)
        held.release()
        frames.wait_for(lambda: 600 in frames.seqs())
        assert frames.accounted() == list(range(1, 601))
        assert len(frames.of(Opened)) == 2
        assert future.close()


def test_a_watch_can_be_continued_in_another_program_by_its_resume_token_c2_18() -> None:
    """The watch continues after the last handled frame in every topic."""
    frames, others = Frames(), Frames()
    with Emulator() as emulator:
        with watched(emulator, frames) as future:
            append(emulator, NEWS, "1", "2")
            frames.wait_for_seqs(1, 2, topic=NEWS)
        append(emulator, NEWS, "3")
        append(emulator, OLDS, "1")
        with SubscriberClient(endpoint=emulator.endpoint) as client:
            client.watch({NEWS: 0, OLDS: 0}, others, resume_token=future.resume_token)
            others.wait_for_seqs(3, topic=NEWS)
            others.wait_for_seqs(1, topic=OLDS)


# ---- frames that were sent and lost with their stream --------------------------------------------


@contextmanager
def raw_watches(emulator: Emulator) -> Iterator[Callable[..., Any]]:
    """Yield a function that begins Watch calls and leaves their frames unparsed."""
    rpc = BY_METHOD["Watch"]
    with grpc.insecure_channel(emulator.endpoint) as channel:
        begin: Any = channel.unary_stream(
            rpc.path,
            request_serializer=feeds.WatchRequest.SerializeToString,
            response_deserializer=feeds.Frame.FromString,
        )
        yield lambda **fields: begin(feeds.WatchRequest(**fields))


def test_every_new_stream_of_a_watch_repeats_the_report_of_a_deleted_topic_c2_24(
    emulator: Emulator,
) -> None:
    """The reader may not have received the first report."""
    append(emulator, NEWS, "1")
    append(emulator, OLDS, "1")
    with raw_watches(emulator) as watch:
        first = watch(spec=feeds.WatchSpec(topics={NEWS: feeds.Position(), OLDS: feeds.Position()}))
        frames = [next(first) for _ in range(5)]
        emulator.inspect(lambda engine: engine.delete_topic(NEWS))
        assert next(first).topic_deleted.topic == NEWS
        first.cancel()
        second = watch(watch_id=frames[0].opened.watch_id, resume_token=frames[-1].resume_token)
        assert NEWS in [next(second).topic_deleted.topic for _ in range(3)]
        second.cancel()


def test_every_new_stream_of_a_watch_repeats_the_report_of_a_recreated_topic_c2_20(
    emulator: Emulator,
) -> None:
    """The session does not move past a token of the topic's former life."""
    append(emulator, NEWS, "1", "2")
    with SubscriberClient(endpoint=emulator.endpoint) as client:
        position = client.feeds.read(NEWS).position
    emulator.inspect(lambda engine: engine.delete_topic(NEWS))
    append(emulator, NEWS, "1")
    with raw_watches(emulator) as watch:
        first = watch(spec=feeds.WatchSpec(topics={NEWS: position}))
        opening, gap, records = (next(first) for _ in range(3))
        assert (gap.gap.reason, len(records.messages.messages)) == (feeds.RECREATED, 1)
        first.cancel()
        second = watch(watch_id=opening.opened.watch_id, resume_token=opening.resume_token)
        next(second)
        assert (next(second).gap, len(next(second).messages.messages)) == (gap.gap, 1)
        second.cancel()
