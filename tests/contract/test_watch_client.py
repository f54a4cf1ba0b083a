"""`client.watch` and `client.read` on a real broker (section 1.2 from the client's side)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from pullstream import SubscriberClient, types
from pullstream.feeds import CaughtUp, Gap, GapReason, Opened, Records, TopicDeleted
from pullstream_emulator import Emulator
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import NotFound, Unimplemented
from tests.contract.watching import Frames, Held

NEWS = "projects/p/topics/news"
OLDS = "projects/p/topics/olds"


@pytest.fixture
def client(emulator: Emulator) -> Iterator[SubscriberClient]:
    with SubscriberClient(endpoint=emulator.endpoint) as client:
        client.feeds.put(NEWS, {"cap_records": 10})
        client.feeds.put(OLDS)
        yield client


def numbers(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last + 1)]


# ---- opening ---------------------------------------------------------------------------------


def test_one_watch_follows_256_topics_from_their_own_positions_c2_15(
    client: SubscriberClient,
) -> None:
    """The watch uses one call; the broker of this test has no room for a second stream."""
    topics = [f"projects/p/topics/many-{number:03}" for number in range(256)]
    for topic in topics:
        client.feeds.append(topic, ["1", "2"])
    frames = Frames()
    client.watch({topic: n % 3 for n, topic in enumerate(topics)}, frames)
    frames.wait_for(lambda: len(frames.of(CaughtUp)) == 256)
    for n, topic in enumerate(topics):
        assert frames.seqs(topic) == [1, 2][n % 3 :]
    assert len(frames.of(Opened)) == 1


def test_the_client_refuses_a_watch_of_no_topics_or_of_too_many_topics_c2_15(
    client: SubscriberClient,
) -> None:
    """The error names the limit."""
    with pytest.raises(ValueError, match="257 entries; a watch must have 1 to 256"):
        client.watch({f"{NEWS}-{number}": 0 for number in range(257)}, print)
    with pytest.raises(ValueError, match="0 entries"):
        client.watch({}, print)


def test_a_watch_of_an_unknown_topic_ends_with_the_error_of_the_server_c2_15(
    client: SubscriberClient,
) -> None:
    """The future has the error, and the call is not retried."""
    frames = Frames()
    with pytest.raises(NotFound):
        client.watch({NEWS: 0, "projects/p/topics/none": 0}, frames).result(10)
    assert frames.all == []


def test_a_watch_on_a_server_without_feeds_ends_with_an_error_without_retries(foreign: str) -> None:
    """Google's service is an example. The call is not retried."""
    with SubscriberClient(endpoint=foreign) as client:
        with pytest.raises(Unimplemented, match="no Watch, which is a call of pullstream's broker"):
            client.watch({NEWS: 0}, print).result(10)
        with pytest.raises(Unimplemented, match="no Read, which is a call of pullstream's broker"):
            client.feeds.read(NEWS)


def test_a_client_watch_started_at_the_tail_receives_only_later_records_c2_16(
    client: SubscriberClient,
) -> None:
    """A watch from 0 receives all records that still exist."""
    client.feeds.append(NEWS, numbers(1, 3))
    tail, whole = Frames(), Frames()
    client.watch({NEWS: "tail"}, tail)
    client.watch({NEWS: 0}, whole)
    tail.wait_for_caught_up()
    client.feeds.append(NEWS, ["4"])
    tail.wait_for_seqs(4)
    whole.wait_for_seqs(1, 2, 3, 4)


def test_a_watch_frame_has_at_most_the_requested_maximum_of_records_c2_17(
    client: SubscriberClient,
) -> None:
    """Each frame has the range of numbers that were examined for it."""
    client.feeds.append(NEWS, numbers(1, 5))
    frames = Frames()
    client.watch({NEWS: 0}, frames, max_messages=2)
    frames.wait_for_caught_up()
    some = frames.of(Records)
    assert [len(one.messages) for one in some] == [2, 2, 1]
    assert [(one.from_seq, one.to_seq, one.head_seq) for one in some] == [
        (0, 2, 5),
        (2, 4, 5),
        (4, 5, 5),
    ]


# ---- gaps ------------------------------------------------------------------------------------


def test_a_slow_watch_handler_receives_a_gap_in_place_of_lost_records_c2_19(
    client: SubscriberClient,
) -> None:
    """Every number is received or reported lost, once and in order."""
    held = Held()
    frames = Frames(held)
    client.watch({NEWS: 0}, frames)
    frames.wait_for_caught_up()
    # Enough to fill the flow-control window of the connection, so that the feed continues without
    # the reader.
    for _ in range(60):
        client.feeds.append(NEWS, ["x" * 20_000] * 10)
    held.wait()
    held.release()
    frames.wait_for(lambda: 600 in frames.seqs())
    assert frames.accounted() == list(range(1, 601))
    assert frames.of(Gap)
    assert {gap.reason for gap in frames.of(Gap)} == {GapReason.CAP}


def test_a_client_watch_started_before_the_oldest_record_of_a_feed_reports_a_gap_c2_20(
    client: SubscriberClient,
) -> None:
    """The gap has the reason for which the records were removed."""
    client.feeds.append(NEWS, numbers(1, 30))
    frames = Frames()
    client.watch({NEWS: 5}, frames)
    frames.wait_for_seqs(*range(21, 31))
    (gap,) = frames.of(Gap)
    assert gap == Gap(NEWS, 6, 20, GapReason.FROM_SEQ_TOO_OLD, GapReason.CAP, 21, 30)


def test_a_client_watch_at_an_old_position_reports_that_the_topic_was_recreated_c2_20(
    client: SubscriberClient, emulator: Emulator
) -> None:
    """The reader is recognised by a position with its epoch, from a read or a cursor."""
    client.feeds.append(NEWS, numbers(1, 3))
    position = client.feeds.read(NEWS).position
    emulator.inspect(lambda engine: engine.delete_topic(NEWS))
    client.feeds.append(NEWS, numbers(1, 2))
    frames = Frames()
    client.watch({NEWS: position}, frames)
    frames.wait_for_seqs(1, 2)
    (gap,) = frames.of(Gap)
    assert gap.reason is GapReason.RECREATED


def test_a_slow_watch_handler_does_not_delay_other_readers_of_the_feed_c2_21(
    client: SubscriberClient,
) -> None:
    """Another watch of the same client is not affected either."""
    held = Held()
    slow, fast = Frames(held), Frames()
    client.watch({NEWS: 0}, slow)
    client.watch({NEWS: 0, OLDS: 0}, fast)
    slow.wait_for_caught_up()
    for number in range(1, 31):
        client.feeds.append(NEWS, ["x" * 20_000])
        fast.wait_for(lambda number=number: number in fast.seqs(NEWS))  # type: ignore[misc]
    client.feeds.append(OLDS, ["a"])
    fast.wait_for_seqs(1, topic=OLDS)
    assert fast.seqs(NEWS) == list(range(1, 31))
    held.wait()
    assert slow.seqs() == [1]
    held.release()
    slow.wait_for(lambda: 30 in slow.seqs())
    assert slow.accounted() == list(range(1, 31))


def test_a_watch_with_a_blocked_handler_has_less_than_1_mib_of_records_in_flight_c2_23(
    client: SubscriberClient,
) -> None:
    """However much is appended, the rest stays in the feed, or is lost and reported."""
    held = Held()
    frames = Frames(held)
    client.watch({NEWS: 0}, frames)
    frames.wait_for_caught_up()
    for _ in range(100):
        client.feeds.append(NEWS, ["x" * 20_000] * 10)
    held.wait()
    held.release()
    frames.wait_for(lambda: 1000 in frames.seqs())
    on_its_way = itertools.takewhile(lambda frame: not isinstance(frame, Gap), frames.all)
    some = [frame for frame in on_its_way if isinstance(frame, Records)]
    assert sum(len(one.data) for frame in some for one in frame.messages) < 2**20
    assert frames.of(Gap)


def test_a_slow_watch_handler_receives_fewer_and_larger_frames_than_a_fast_one_c2_23(
    client: SubscriberClient,
) -> None:
    """Records that have accumulated arrive together."""
    held = Held()
    frames = Frames(held)
    client.watch({OLDS: 0}, frames)
    frames.wait_for_caught_up()
    for number in range(200):
        client.feeds.append(OLDS, [f"{number:>4}" + "x" * 10_000])
    held.wait()
    held.release()
    frames.wait_for(lambda: 200 in frames.seqs())
    assert frames.seqs() == list(range(1, 201))
    assert max(len(one.messages) for one in frames.of(Records)) >= 10


# ---- content of frames -----------------------------------------------------------------------


def test_a_client_watch_with_include_data_false_receives_numbers_tags_and_nodes_c2_25(
    client: SubscriberClient,
) -> None:
    """Such a watch is for readers that only need to know that there are new records."""
    attributes = {"tag": "public", "node": "a", "other": "x"}
    client.feeds.append(NEWS, [{"data": b"large", "attributes": attributes}])
    frames = Frames()
    client.watch({NEWS: 0}, frames, include_data=False)
    frames.wait_for_seqs(1)
    (message,) = frames.of(Records)[0].messages
    assert (message.data, dict(message.attributes)) == (b"", {"tag": "public", "node": "a"})


def test_a_client_watch_reports_caught_up_after_the_backlog_of_each_topic_c2_26(
    client: SubscriberClient,
) -> None:
    """CaughtUp has the last number and the time."""
    client.feeds.append(NEWS, numbers(1, 3))
    frames = Frames()
    client.watch({NEWS: 0, OLDS: 0}, frames)
    frames.wait_for_caught_up(2)
    assert {one.topic: one.head_seq for one in frames.of(CaughtUp)} == {NEWS: 3, OLDS: 0}
    news = [frame for frame in frames.all if getattr(frame, "topic", NEWS) == NEWS]
    assert [type(frame) for frame in news] == [Opened, Records, CaughtUp]


def test_a_client_watch_ends_when_the_last_of_its_topics_is_deleted_c2_26(
    client: SubscriberClient, emulator: Emulator
) -> None:
    """The watches of the other topics continue."""
    frames = Frames()
    future = client.watch({NEWS: 0, OLDS: 0}, frames)
    frames.wait_for_caught_up(2)
    emulator.inspect(lambda engine: engine.delete_topic(NEWS))
    frames.wait_for(lambda: frames.of(TopicDeleted) == [TopicDeleted(NEWS)])
    client.feeds.append(OLDS, ["a"])
    frames.wait_for_seqs(1, topic=OLDS)
    assert future.running()
    emulator.inspect(lambda engine: engine.delete_topic(OLDS))
    assert future.result(10)


def test_a_client_watch_that_names_its_node_receives_no_records_of_that_node_c2_26(
    client: SubscriberClient,
) -> None:
    """The reader receives only CaughtUp."""
    client.feeds.append(NEWS, [{"data": b"mine", "attributes": {"node": "me"}}])
    frames = Frames()
    future = client.watch({NEWS: 0}, frames, exclude_node="me")
    frames.wait_for_caught_up()
    client.feeds.append(NEWS, [{"data": b"yours", "attributes": {"node": "you"}}])
    frames.wait_for_seqs(2)
    assert frames.of(Gap) == []
    assert future.close()


def test_many_client_watches_of_one_topic_can_have_different_filters_c2_27(
    client: SubscriberClient,
) -> None:
    """Each watch has its own filter."""
    some, other = Frames(), Frames()
    public = types.Position(after_seq=0, filter='attributes.tag = "public"')
    client.watch({NEWS: public}, some)
    client.watch({NEWS: 0}, other)
    for tag in ("public", "private"):
        client.feeds.append(NEWS, [{"data": tag.encode(), "attributes": {"tag": tag}}])
    other.wait_for_seqs(1, 2)
    some.wait_for_seqs(1)


# ---- reading ---------------------------------------------------------------------------------


def test_consecutive_feed_reads_by_a_client_return_every_record_once_c2_28(
    client: SubscriberClient,
) -> None:
    """The read has a filter and continues until it is caught up."""
    client.feeds.append(
        OLDS,
        [{"data": b"x", "attributes": {"tag": "ab"[number % 2]}} for number in range(10)],
    )
    reading = client.feeds.read(OLDS, filter='attributes.tag = "a"', max_messages=2)
    seqs = [message.message_id for message in reading.messages]
    while not reading.caught_up:
        reading = client.feeds.read(OLDS, after=reading.position, max_messages=2)
        seqs += [message.message_id for message in reading.messages]
    assert seqs == ["1", "3", "5", "7", "9"]
    assert (reading.position.after_seq, reading.head_seq) == (10, 10)


def test_a_feed_read_by_a_client_reports_lost_records_as_a_gap_c2_28(
    client: SubscriberClient,
) -> None:
    """The gap comes before the records. A read without a loss has no gap."""
    client.feeds.append(NEWS, numbers(1, 12))
    reading = client.feeds.read(NEWS)
    assert reading.gap is not None
    assert (reading.gap.from_seq, reading.gap.to_seq, reading.gap.reason) == (1, 2, GapReason.CAP)
    assert reading.messages[0].message_id == "3"
    assert client.feeds.read(NEWS, after=2).gap is None


def test_a_feed_read_by_a_client_that_waits_returns_the_next_appended_record_c2_28(
    client: SubscriberClient,
) -> None:
    """The position is, for example, the tail that the first read returned."""
    start = client.feeds.read(NEWS, after="tail")
    assert (list(start.messages), start.caught_up) == ([], True)
    client.feeds.append(NEWS, ["a"])
    assert client.feeds.read(NEWS, after=start.position, wait=20).messages[0].data == b"a"


def test_a_repeated_feed_append_with_the_same_idempotency_key_is_applied_once_c2_7(
    client: SubscriberClient, clock: ManualClock
) -> None:
    """A repetition within 120 s is recognised."""
    first = client.feeds.append(NEWS, ["a", b"b"], idempotency_key="k")
    again = client.feeds.append(NEWS, ["a", b"b"], idempotency_key="k")
    assert (first.first_seq, first.last_seq, first.deduped) == (1, 2, False)
    assert (again.first_seq, again.last_seq, again.deduped, again.head_seq) == (1, 2, True, 2)
    clock.advance(121)
    assert client.feeds.append(NEWS, ["a"], idempotency_key="k").first_seq == 3


def test_a_client_append_with_create_false_to_a_missing_topic_is_refused_c2_8(
    client: SubscriberClient,
) -> None:
    """By default an append creates the topic."""
    with pytest.raises(NotFound):
        client.feeds.append("projects/p/topics/none", ["a"], create=False)
    assert client.feeds.append("projects/p/topics/none", ["a"]).created
