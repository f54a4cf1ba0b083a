"""Watches without a network: frames, turns, and the phases of a stream."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pullstream_emulator.logs.resume_token import decode
from pullstream_protocol.errors import Aborted, InvalidArgument, NotFound
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.logs.driver import PROJECT, TOPIC, Driver, Reader, kinds, seqs

HOT, QUIET = f"{PROJECT}/topics/hot", f"{PROJECT}/topics/quiet"


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.put()
    return driver


def test_a_watch_of_several_topics_sends_one_frame_of_each_topic_in_turn(driver: Driver) -> None:
    """A busy topic does not delay the others until it is drained."""
    driver.append(*["x"] * 1000, topic=HOT)
    driver.append("y", topic=QUIET)
    frames = Reader(driver.watch(HOT, QUIET)).take()
    assert [f.messages.topic for f in frames[:3]] == [HOT, QUIET, HOT]
    assert kinds(frames[2:4]) == ["messages", "caught_up"]


def test_a_waiting_watch_reader_is_woken_once_for_several_appends(driver: Driver) -> None:
    reader = Reader(driver.watch())
    reader.take()
    for _ in range(3):
        driver.append("x")
    assert reader.wakes == 1
    assert kinds(reader.take()) == ["messages"]
    driver.append("x")
    assert reader.wakes == 2


def test_an_append_wakes_no_reader_of_a_watch_session_without_a_stream(driver: Driver) -> None:
    reader = Reader(driver.watch())
    reader.take()
    reader.stream.detach()
    driver.append("x")
    assert (reader.wakes, driver.state().watchers) == (0, 0)
    assert not reader.watch.has_more


def test_a_watch_filters_many_records_in_pieces_so_that_other_readers_can_run_in_between(
    driver: Driver,
) -> None:
    """Other readers have their turn in between. Each piece asks for another call."""
    driver.append(*["x"] * 3500, node="a")
    reader = Reader(driver.watch(exclude_node="a"))
    for _ in range(3):
        assert reader.next() is None
    assert reader.wakes == 3
    frame = reader.next()
    assert frame is not None
    assert frame.caught_up.head_seq == 3500


def test_a_watch_with_a_filter_sends_only_matching_records(driver: Driver) -> None:
    for number in range(6):
        driver.append(str(number), tag="odd" if number % 2 else "even")
    spec = feeds.WatchSpec()
    spec.topics[TOPIC].filter = 'attributes.tag = "odd"'
    messages, caught_up = Reader(driver.feeds.create(spec)).take()
    assert seqs(messages.messages.messages) == [2, 4, 6]
    assert caught_up.caught_up.head_seq == 6


def test_a_new_watch_continues_at_the_position_of_its_resume_token(driver: Driver) -> None:
    """The token also works when the old session is gone."""
    driver.append("a", "b")
    token = Reader(driver.watch(max_messages=1)).take()[0].resume_token
    frames = Reader(driver.watch(token=token)).take()
    assert seqs(frames[0].messages.messages) == [2]
    assert decode(token)[TOPIC] == (1, driver.state().epoch)


def test_a_resumed_watch_reports_a_topic_that_was_deleted_since_its_resume_token(
    driver: Driver,
) -> None:
    """The topic was deleted while its reader was disconnected and the session expired.

    The others continue.
    """
    driver.append("x", topic=HOT)
    driver.append("y", topic=QUIET)
    token = Reader(driver.watch(HOT, QUIET)).take()[-1].resume_token
    driver.delete_topic(HOT)
    driver.append("z", topic=QUIET)
    frames = Reader(driver.watch(HOT, QUIET, token=token)).take()
    assert kinds(frames) == ["topic_deleted", "messages", "caught_up"]
    assert seqs(frames[1].messages.messages) == [2]
    with pytest.raises(NotFound):
        driver.watch(HOT, QUIET)


def test_a_watch_resumed_with_a_token_from_before_a_topic_recreation_reports_a_gap(
    driver: Driver,
) -> None:
    driver.append("a", "b")
    token = Reader(driver.watch()).take()[-1].resume_token
    driver.delete_topic()
    driver.append("new")
    gap, messages, _ = Reader(driver.watch(token=token)).take()
    assert (gap.gap.reason, gap.gap.from_seq, gap.gap.to_seq) == (feeds.RECREATED, 1, 0)
    assert seqs(messages.messages.messages) == [1]


def test_a_watch_repeats_the_gap_of_a_topic_recreation_until_the_reader_has_received_it(
    driver: Driver,
) -> None:
    """The token shows that the frame with the report has not arrived."""
    driver.append("a")
    token = Reader(driver.watch()).take()[0].resume_token
    driver.delete_topic()
    driver.append("new")
    watch = driver.watch(token=token)
    frames = kinds(Reader(watch).take())
    assert frames == ["gap", "messages", "caught_up"]
    watch.rewind(token)
    assert kinds(Reader(watch).take()) == frames


def test_a_watch_gives_the_reason_too_old_only_for_records_lost_before_the_watch_started(
    driver: Driver,
) -> None:
    """A later loss has its own reason."""
    driver.put(cap_records=1)
    driver.append("a", "b")
    reader = Reader(driver.watch())
    first = reader.take()[0].gap
    assert (first.reason, first.cause) == (feeds.FROM_SEQ_TOO_OLD, feeds.CAP)
    driver.append("c", "d")
    assert reader.take()[0].gap.reason == feeds.CAP
    # This also holds for a reader that came in time and lost records before its first frame.
    late = Reader(driver.watch(after=4))
    driver.append("e", "f")
    assert late.take()[0].gap.reason == feeds.CAP


def test_a_watch_sends_no_expired_records_even_before_the_expiry_timer_has_run(
    driver: Driver,
) -> None:
    driver.put(ttl_ms=1000)
    driver.append("a")
    reader = Reader(driver.watch())
    driver.clock.advance(1.001)
    assert kinds(reader.take()) == ["gap", "caught_up"]


def test_a_watch_reports_a_deleted_topic_as_deleted_even_if_the_topic_was_created_again(
    driver: Driver,
) -> None:
    watch = driver.watch()
    driver.delete_topic()
    driver.append("of another incarnation")
    assert kinds(Reader(watch).take()) == ["topic_deleted"]


def test_a_refused_watch_does_not_turn_a_topic_into_a_feed(driver: Driver) -> None:
    """The watch does not even turn a topic into a feed."""
    driver.engine.create_topic(pubsub.Topic(name=QUIET))
    with pytest.raises(InvalidArgument, match="after_seq"):
        driver.watch(QUIET, TOPIC, after=-1)
    with pytest.raises(InvalidArgument, match="max_messages"):
        driver.watch(QUIET, max_messages=-1)
    with pytest.raises(NotFound):
        driver.watch(QUIET, f"{PROJECT}/topics/missing")
    with pytest.raises(NotFound, match="not a feed"):
        driver.state(QUIET)


# ---- the phases of a stream ----------------------------------------------------------------------


def test_an_idle_watch_sends_heartbeats(driver: Driver) -> None:
    reader = Reader(driver.watch())
    reader.take()
    driver.advance(14.9)
    assert reader.wakes == 0
    driver.advance(0.1)
    assert (reader.wakes, kinds(reader.take())) == (1, ["heartbeat"])
    driver.advance(15)
    assert kinds(reader.take()) == ["heartbeat"]


def test_a_watch_stream_that_takes_no_frames_is_woken_only_once_for_a_due_heartbeat(
    driver: Driver,
) -> None:
    reader = Reader(driver.watch())
    reader.take()
    for _ in range(5):
        driver.advance(20)
    assert (reader.wakes, kinds(reader.take())) == (1, ["heartbeat"])


def test_the_stream_of_a_watch_reader_that_takes_no_frame_is_ended_after_a_timeout(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    """The stream counts as writing until the next frame is requested."""
    caplog.set_level(logging.WARNING, logger="pullstream.emulator")
    driver.append("x")
    reader = Reader(driver.watch())
    reader.next()
    driver.advance(4.9)
    assert caplog.messages == []
    driver.advance(0.1)
    assert "has taken nothing for 5 s" in caplog.messages[0]
    driver.advance(24.9)
    assert driver.state().watchers == 1
    driver.advance(0.1)
    assert (reader.wakes, driver.state().watchers) == (1, 0)
    with pytest.raises(Aborted, match="has taken nothing for 30 s"):
        reader.next()
    # The session still exists.
    assert driver.feeds.find(reader.watch.id) is reader.watch


def test_a_slow_watch_reader_that_takes_its_frame_in_time_keeps_its_stream(driver: Driver) -> None:
    driver.append("x")
    reader = Reader(driver.watch())
    reader.next()
    driver.advance(25)
    assert kinds(reader.take()) == ["caught_up"]
    driver.advance(14)
    driver.append("y")
    assert kinds(reader.take()) == ["messages"]


def test_a_jump_of_the_clock_ends_no_stream_of_a_healthy_watch_reader(driver: Driver) -> None:
    driver.append("x")
    reader = Reader(driver.watch())
    reader.next()
    driver.advance(100_000)
    assert kinds(reader.take()) == ["caught_up"]


def test_a_second_stream_of_a_watch_session_ends_the_first_stream(driver: Driver) -> None:
    watch = driver.watch()
    first = Reader(watch)
    first.take()
    second = Reader(watch)
    assert first.wakes == 1
    with pytest.raises(Aborted, match="Another stream"):
        first.next()
    first.stream.detach()
    assert driver.state().watchers == 1
    driver.append("x")
    assert kinds(second.take()) == ["messages", "caught_up"]


# ---- random lives of a reader --------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 30)),
        st.tuples(st.just("read"), st.integers(1, 6)),
        st.tuples(st.just("resume"), st.integers(0, 5)),
        st.tuples(st.just("new session"), st.integers(0, 5)),
        st.tuples(st.just("advance"), st.integers(1, 4)),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 40))
@settings(max_examples=80)
def test_a_watch_reader_that_resumes_with_a_token_gets_every_record_or_a_gap(
    steps: list[tuple[str, int]], cap: int
) -> None:
    """Records come in order. The reader may resume with any of its last tokens."""
    driver = Driver()
    driver.put(cap_records=cap, ttl_ms=5000)
    watch = driver.watch(max_messages=7)
    reader = Reader(watch)
    position, received = 0, [("", 0)]
    for step, number in [*steps, ("read", 1000)]:
        if step == "append":
            driver.append(*["x"] * number)
        elif step == "advance":
            driver.advance(number)
        elif step in ("resume", "new session"):
            # Later reports do not count, because a session does not move ahead of the token.
            received = received[: max(len(received) - number, 1)]
            token, position = received[-1]
            if step == "resume" and token:
                watch.rewind(token)
            else:
                watch = driver.watch(max_messages=7, token=token)
            reader = Reader(watch)
        else:
            for _ in range(number):
                frame = reader.next()
                if frame is None:
                    break
                if frame.HasField("gap"):
                    assert frame.gap.from_seq == position + 1
                    position = frame.gap.to_seq
                for seq in seqs(frame.messages.messages):
                    assert seq == position + 1
                    position = seq
                if frame.resume_token:
                    assert decode(frame.resume_token)[TOPIC].seq == position
                    received.append((frame.resume_token, position))
    assert position == driver.state().head_seq
