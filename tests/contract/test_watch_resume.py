"""Resuming a watch: C2.18, C2.24."""

from __future__ import annotations

from typing import Any

from pullstream_emulator import Emulator
from pullstream_protocol.clock import ManualClock
from tests.contract.face import (
    Face,
    WatchHandle,
    data_of,
    expect,
    next_records,
    refused,
    texts,
)


def leave(face: Face, watch: WatchHandle, topic: str = "orders") -> None:
    """End the stream, and wait until the broker has noticed."""
    watch.close()
    while face.get_topic(topic)["watchers"]:
        pass


def by_topic(watch: WatchHandle) -> dict[str, list[Any]]:
    """Return the events until both topics are caught up, by topic."""
    found: dict[str, list[Any]] = {"one": [], "two": []}
    caught_up: set[str] = set()
    while len(caught_up) < 2:
        name, _, content = watch.next()
        if name == "caught-up":
            caught_up.add(content["topic"])
        else:
            found[content["topic"]] += [record["data"] for record in content["records"]]
    return found


def watch_the_end(face: Face) -> WatchHandle:
    """Create a topic, and watch its later records."""
    face.put_topic("orders")
    watch = face.watch({"orders": {"tail": True}})
    expect(watch, "caught-up")
    return watch


def watch_one_record(face: Face) -> WatchHandle:
    """Append the record 1 to a topic, and watch the topic from its start."""
    face.append("orders", texts(1))
    watch = face.watch({"orders": {"from_seq": 0}})
    expect(watch, "record", "caught-up")
    return watch


def test_the_event_id_of_a_watch_contains_the_positions_of_all_its_topics_c2_18(face: Face) -> None:
    face.append("one", texts(1, 2, 3))
    face.append("two", texts("a", "b", "c"))
    watch = face.watch({"one": {"from_seq": 0}, "two": {"from_seq": 0}}, limit=1)
    # The topics alternate.
    events = expect(watch, "record", "record", "record")
    assert [data_of(event) for event in events] == [[1], ["a"], [2]]
    watch.reopen(last_event_id=events[2][1])
    assert by_topic(watch) == {"one": [3], "two": ["b", "c"]}
    watch.reopen(last_event_id=events[0][1])
    assert by_topic(watch) == {"one": [2, 3], "two": ["a", "b", "c"]}


def test_a_watch_resumed_with_an_event_id_continues_after_that_event_c2_18(
    face: Face,
) -> None:
    face.append("orders", texts(*range(1, 7)))
    watch = face.watch({"orders": {"from_seq": 0}}, limit=2)
    events = expect(watch, "record", "record", "record", "caught-up")
    for position, event in zip((2, 4, 6), events, strict=False):
        watch.reopen(last_event_id=event[1])
        assert next_records(watch, 6 - position) == list(range(position + 1, 7))
        expect(watch, "caught-up")


def test_an_event_id_can_rewind_a_watch_session_but_not_advance_the_session_c2_18(
    face: Face,
) -> None:
    """A token cannot move the session past its own positions."""
    watch = watch_one_record(face)
    leave(face, watch)
    face.append("orders", texts(2, 3))
    ahead, _ = expect(face.watch({"orders": {"from_seq": 0}}), "record", "caught-up")
    watch.reopen(last_event_id=ahead[1])
    assert next_records(watch, 2) == [2, 3]


def test_a_watch_resumed_without_an_event_id_continues_at_the_cursor_of_its_session_c2_18(
    face: Face,
) -> None:
    face.append("orders", texts(1, 2))
    watch = face.watch({"orders": {"from_seq": 0}})
    expect(watch, "record", "caught-up")
    leave(face, watch)
    face.append("orders", texts(3))
    watch.reopen()
    assert next_records(watch, 1) == [3]


def test_resuming_a_watch_with_an_invalid_event_id_is_refused_and_moves_no_cursor_c2_18(
    face: Face,
) -> None:
    watch = watch_one_record(face)
    for nonsense in ("???", "bm9uc2Vuc2U", "W10", "eyJhIjoxfQ"):
        with refused(400):
            watch.reopen(last_event_id=nonsense)
    face.append("orders", texts(2))
    watch.reopen()
    assert next_records(watch, 1) == [2]


def test_a_second_stream_of_a_watch_session_ends_the_first_stream_c2_18(face: Face) -> None:
    watch = watch_one_record(face)
    watch.reopen()
    expect(watch, "caught-up")
    face.append("orders", texts(2))
    assert next_records(watch, 1) == [2]
    assert face.get_topic("orders")["watchers"] == 1


def test_a_watch_session_loses_no_record_between_two_of_its_streams_c2_24(
    face: Face, clock: ManualClock
) -> None:
    face.put_topic("orders")
    watch = face.watch({"orders": {"tail": True}})
    assert watch.session_ttl_ms == 300_000
    expect(watch, "caught-up")
    leave(face, watch)
    face.append("orders", texts(*range(1000)))
    clock.advance(299)
    watch.reopen()
    assert next_records(watch, 1000) == list(range(1000))


def test_resuming_an_expired_watch_session_is_refused_with_not_found_c2_24(
    face: Face, clock: ManualClock
) -> None:
    watch = watch_the_end(face)
    leave(face, watch)
    clock.advance(300)
    with refused(404):
        watch.reopen()


def test_resuming_an_unknown_watch_session_is_refused_with_not_found_c2_24(face: Face) -> None:
    face.put_topic("orders")
    watch = face.watch({"orders": {"tail": True}})
    watch.wid += "x"
    with refused(404):
        watch.reopen()


def test_the_time_to_live_of_a_watch_session_counts_from_the_end_of_its_stream_c2_24(
    face: Face, clock: ManualClock
) -> None:
    """An open stream never expires. The timer restarts when a stream ends."""
    watch = watch_the_end(face)
    for _ in range(2):
        clock.advance(1000)
        expect(watch, "hb")
        leave(face, watch)
        clock.advance(299)
        watch.reopen()
        expect(watch, "caught-up")
    face.append("orders", texts("still there"))
    assert next_records(watch, 1) == ["still there"]


def test_a_resumed_watch_session_reports_gaps_that_occurred_while_it_had_no_stream_c2_24(
    face: Face,
) -> None:
    face.put_topic("orders", cap_records=2)
    watch = face.watch({"orders": {"tail": True}})
    expect(watch, "caught-up")
    leave(face, watch)
    face.append("orders", texts(1, 2, 3, 4, 5))
    watch.reopen()
    tombstone, record, _ = expect(watch, "tombstone", "record", "caught-up")
    assert (tombstone[2]["gap_from"], tombstone[2]["gap_to"]) == (1, 3)
    assert (tombstone[2]["reason"], data_of(record)) == ("cap", [4, 5])


def test_a_broker_that_stops_ends_watch_streams_with_unavailable_c2_24(
    face: Face, emulator: Emulator
) -> None:
    """Clients reconnect after such an end."""
    watch = watch_the_end(face)
    emulator.stop()
    with refused(503):
        watch.next()


def test_a_reset_of_the_broker_ends_watch_streams_and_sessions_c2_24(
    face: Face, emulator: Emulator
) -> None:
    watch = watch_the_end(face)
    emulator.reset()
    with refused(404):
        watch.next()
