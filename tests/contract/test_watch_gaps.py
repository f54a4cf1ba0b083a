"""Gaps: every loss is reported (C2.19 to C2.21)."""

from __future__ import annotations

from pullstream_protocol.clock import ManualClock
from tests.contract.face import Face, WatchHandle, data_of, expect, next_records, texts
from tests.contract.test_watch_resume import leave


def caught_up_and_gone(face: Face, topic: str = "orders") -> WatchHandle:
    """Return a watch that is caught up and whose reader has disconnected."""
    watch = face.watch({topic: {"from_seq": 0}})
    while watch.next()[0] != "caught-up":
        pass
    leave(face, watch, topic)
    return watch


def test_a_watch_reports_a_gap_for_lost_records_before_the_next_records_c2_19(face: Face) -> None:
    face.put_topic("orders", cap_records=3)
    face.append("orders", texts(1, 2))
    watch = caught_up_and_gone(face)
    face.append("orders", texts(*range(3, 11)))
    watch.reopen()
    tombstone, record, _ = expect(watch, "tombstone", "record", "caught-up")
    assert tombstone[2] == {
        "topic": "orders",
        "reason": "cap",
        "gap_from": 3,
        "gap_to": 7,
        "earliest_seq": 8,
        "head_seq": 10,
    }
    assert (record[2]["from_seq"], data_of(record)) == (7, [8, 9, 10])


def test_a_watch_resumed_with_the_event_id_of_a_gap_does_not_repeat_the_gap_c2_19(
    face: Face,
) -> None:
    """A reader that resumes with this ID does not get the gap again."""
    face.put_topic("orders", cap_records=1)
    face.append("orders", texts(1, 2, 3))
    watch = face.watch({"orders": {"from_seq": 0}})
    tombstone, _ = expect(watch, "tombstone", "record")
    watch.reopen(last_event_id=tombstone[1])
    assert data_of(watch.next()) == [3]


def test_the_reason_of_a_watch_gap_is_cap_ttl_or_mixed_c2_20(
    face: Face, clock: ManualClock
) -> None:
    face.put_topic("orders", cap_records=2, ttl_ms=5000)
    watch = caught_up_and_gone(face)
    face.append("orders", texts(1, 2, 3))
    watch.reopen()
    tombstone, *_ = expect(watch, "tombstone", "record", "caught-up")
    assert (tombstone[2]["reason"], tombstone[2]["gap_to"]) == ("cap", 1)
    leave(face, watch)
    clock.advance(1)
    face.append("orders", texts(4))
    clock.advance(5.5)
    watch.reopen()
    tombstone, _ = expect(watch, "tombstone", "caught-up")
    assert (tombstone[2]["reason"], tombstone[2]["gap_to"]) == ("ttl", 4)
    leave(face, watch)
    face.append("orders", texts(5, 6, 7))
    clock.advance(6)
    watch.reopen()
    tombstone, _ = expect(watch, "tombstone", "caught-up")
    assert (tombstone[2]["reason"], tombstone[2]["gap_to"]) == ("mixed", 7)


def test_a_watch_started_before_the_oldest_record_of_a_feed_reports_from_seq_too_old_c2_20(
    face: Face,
) -> None:
    """The gap has the true reason.

    This also holds for position 0 if the oldest records are gone.
    """
    face.put_topic("orders", cap_records=2)
    face.append("orders", texts(1, 2, 3, 4))
    for position, gap_from in ((0, 1), (1, 2)):
        watch = face.watch({"orders": {"from_seq": position}})
        tombstone, record = expect(watch, "tombstone", "record")
        assert tombstone[2]["reason"] == "from_seq_too_old"
        assert tombstone[2]["cause"] == "cap"
        assert (tombstone[2]["gap_from"], tombstone[2]["gap_to"]) == (gap_from, 2)
        assert data_of(record) == [3, 4]


def test_a_watch_started_right_before_the_oldest_record_reports_no_gap_c2_20(face: Face) -> None:
    face.put_topic("orders", cap_records=2)
    face.append("orders", texts(1, 2, 3, 4))
    expect(face.watch({"orders": {"from_seq": 2}}), "record", "caught-up")


def test_a_watch_reports_each_gap_only_once_c2_20(face: Face) -> None:
    face.put_topic("orders", cap_records=1)
    watch = caught_up_and_gone(face)
    for number in range(10):
        face.append("orders", texts(number))
    watch.reopen()
    expect(watch, "tombstone", "record", "caught-up")


def test_a_watch_does_not_report_records_deleted_by_a_user_as_a_gap_c2_20(face: Face) -> None:
    face.append("orders", [{"data": n, "tag": str(n)} for n in range(1, 7)])
    face.delete_records("orders", before_seq=3)
    face.delete_records("orders", match=["tag", "Eq", "5"])
    watch = face.watch({"orders": {"from_seq": 0}})
    record, _ = expect(watch, "record", "caught-up")
    assert data_of(record) == [3, 4, 6]


def test_a_watch_does_not_report_records_excluded_by_their_node_as_a_gap_c2_20(face: Face) -> None:
    face.put_topic("orders", cap_records=2)
    watch = face.watch({"orders": {"tail": True}}, node="a")
    expect(watch, "caught-up")
    for number in range(5):
        face.append("orders", [{"data": number, "node": "a"}])
        event = watch.next()
        assert event[0] == "caught-up"
    leave(face, watch)
    watch.reopen(last_event_id=event[1])
    expect(watch, "caught-up")


def test_a_watch_at_an_old_position_reports_that_the_topic_was_recreated_c2_20(face: Face) -> None:
    face.append("orders", texts(*range(5)))
    known = face.read("orders")
    face.delete_topic("orders")
    face.append("orders", texts("new"))
    start = {"from_seq": known["next_from_seq"], "epoch": known["epoch"]}
    tombstone, record = expect(face.watch({"orders": start}), "tombstone", "record")
    assert (tombstone[2]["reason"], data_of(record)) == ("recreated", ["new"])


def test_records_lost_in_one_topic_of_a_watch_do_not_affect_the_other_topics_c2_21(
    face: Face,
) -> None:
    face.put_topic("small", cap_records=1)
    face.put_topic("large")
    watch = face.watch({"small": {"tail": True}, "large": {"tail": True}})
    quick = face.watch({"small": {"tail": True}})
    expect(watch, "caught-up", "caught-up")
    expect(quick, "caught-up")
    watch.close()
    while face.get_topic("large")["watchers"]:
        pass
    for number in range(4):
        face.append("small", texts(number))
        face.append("large", texts(number))
        # A reader that keeps up has lost nothing.
        assert next_records(quick, 1) == [number]
    watch.reopen()
    events = [watch.next() for _ in range(5)]
    of_small = [event[0] for event in events if event[2]["topic"] == "small"]
    of_large = [event for event in events if event[2]["topic"] == "large"]
    assert of_small == ["tombstone", "record", "caught-up"]
    assert [event[0] for event in of_large] == ["record", "caught-up"]
    assert data_of(of_large[0]) == [0, 1, 2, 3]
