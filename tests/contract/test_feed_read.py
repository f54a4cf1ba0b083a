"""Reading by position: C2.28, and the rules of C2.20 for reads."""

from __future__ import annotations

import threading

import pytest

from pullstream_protocol.clock import ManualClock
from tests.contract.face import Face, FaceError, texts


def numbers(answer: dict[str, list[dict[str, int]]]) -> list[int]:
    return [record["$seq"] for record in answer["records"]]


def test_a_feed_read_returns_the_records_after_its_position_and_the_next_position_c2_28(
    face: Face,
) -> None:
    face.append("orders", texts(*range(5)))
    answer = face.read("orders", from_seq=1, limit=2)
    assert numbers(answer) == [2, 3]
    del answer["records"]
    assert answer == {
        "topic": "orders", "epoch": face.get_topic("orders")["epoch"], "next_from_seq": 3,
        "head_seq": 5, "earliest_seq": 1, "caught_up": False, "lag": 2, "tombstone": None,
    }  # fmt: skip
    answer = face.read("orders", from_seq=answer["next_from_seq"])
    assert (numbers(answer), answer["caught_up"], answer["lag"]) == ([4, 5], True, 0)
    assert answer["tombstone"] is None


def test_a_feed_read_returns_256_records_by_default_and_at_most_1000_c2_28(face: Face) -> None:
    face.append("orders", texts(*range(2000)))
    assert len(face.read("orders")["records"]) == 256
    assert len(face.read("orders", limit=1000)["records"]) == 1000
    assert len(face.read("orders", limit=1500)["records"]) == 1000


def test_a_feed_read_returns_a_single_record_that_is_larger_than_the_byte_limit_c2_28(
    face: Face,
) -> None:
    face.append("orders", texts("x" * 2000, "y" * 2000, "z"))
    assert numbers(face.read("orders", max_batch_bytes=1000)) == [1]


def test_the_next_position_of_a_feed_read_is_past_records_that_the_read_filtered_out_c2_28(
    face: Face,
) -> None:
    """The position passes records that a filter or a node excluded."""
    face.append("orders", [{"data": 1, "node": "a"}, {"data": 2, "node": "b"}], node="a")
    face.append("orders", [{"data": n, "node": "a"} for n in range(3)])
    answer = face.read("orders", node="a")
    assert (numbers(answer), answer["next_from_seq"], answer["caught_up"]) == ([2], 5, True)
    for tag in ("public:1", "private", "public:2"):
        face.append("tagged", [{"data": tag, "tag": tag}])
    answer = face.read("tagged", filter=["tag", "Glob", "public:*"])
    assert [record["data"] for record in answer["records"]] == ["public:1", "public:2"]
    answer = face.read("tagged", filter=["tag", "Eq", "private"])
    assert (numbers(answer), answer["next_from_seq"]) == ([2], 3)


def test_a_feed_read_from_the_tail_returns_only_records_appended_later_c2_28(face: Face) -> None:
    face.append("orders", texts(1, 2))
    answer = face.read("orders", tail=True)
    assert (numbers(answer), answer["next_from_seq"], answer["caught_up"]) == ([], 2, True)


def test_a_feed_read_that_waits_returns_the_next_appended_record_c2_28(face: Face) -> None:
    face.append("orders", texts(1))
    answers = []
    reader = threading.Thread(
        target=lambda: answers.append(face.read("orders", tail=True, wait_ms=20_000))
    )
    reader.start()
    # Append more than once, because the start of the wait is not visible from outside.
    while reader.is_alive():
        face.append("orders", texts("news"))
        reader.join(0.02)
    assert answers[0]["records"][0]["data"] == "news"


def test_a_waiting_feed_read_returns_no_records_at_the_end_of_its_wait_time_c2_28(
    face: Face,
) -> None:
    face.append("orders", texts(1))
    answer = face.read("orders", from_seq=1, wait_ms=50)
    assert (numbers(answer), answer["next_from_seq"], answer["caught_up"]) == ([], 1, True)


def test_deleting_a_topic_ends_a_feed_read_that_waits_for_a_record_c2_28(face: Face) -> None:
    face.append("orders", texts(1))
    refusals = []

    def wait() -> None:
        with pytest.raises(FaceError) as refused:
            face.read("orders", from_seq=1, wait_ms=20_000)
        refusals.append(refused.value.status)

    reader = threading.Thread(target=wait)
    reader.start()
    while reader.is_alive():
        # A read that arrives only now does not find the topic either.
        face.delete_topic("orders")
        reader.join(0.02)
    assert refusals == [404]


def test_the_earliest_sequence_number_of_a_feed_never_decreases_c2_28(
    face: Face, clock: ManualClock
) -> None:
    face.put_topic("orders", cap_records=3, ttl_ms=5000)
    seen = [face.get_topic("orders")["earliest_seq"]]
    for step in (
        lambda: face.append("orders", texts(*range(5))),
        lambda: clock.advance(6),
        lambda: face.append("orders", texts(6)),
        lambda: face.put_topic("orders", cap_records=100),
        lambda: face.append("orders", texts(7)),
        lambda: face.delete_records("orders", before_seq=7),
        lambda: face.put_topic("orders", cap_records=1),
    ):
        step()
        seen.append(face.get_topic("orders")["earliest_seq"])
    assert seen == [1, 3, 6, 6, 6, 6, 7, 7]


def test_a_feed_read_at_an_old_position_reports_that_the_topic_was_recreated_c2_28(
    face: Face,
) -> None:
    """The reader is recognised by the epoch, or by a number that the new topic has not reached."""
    face.append("orders", texts(*range(5)))
    before = face.read("orders")
    assert face.read("orders", epoch=before["epoch"], from_seq=1)["tombstone"] is None
    face.delete_topic("orders")
    face.append("orders", texts("new", "newer"))
    for position in ({"epoch": before["epoch"], "from_seq": 1}, {"from_seq": 5}):
        answer = face.read("orders", **position)
        assert answer["tombstone"]["reason"] == "recreated"
        assert numbers(answer) == [1, 2]
        assert answer["epoch"] != before["epoch"]


def test_a_feed_read_reports_the_exact_range_of_lost_records_c2_20(face: Face) -> None:
    face.put_topic("orders", cap_records=3)
    face.append("orders", texts(*range(10)))
    answer = face.read("orders", from_seq=2)
    assert answer["tombstone"] == {
        "reason": "cap",
        "gap_from": 3,
        "gap_to": 7,
        "earliest_seq": 8,
        "head_seq": 10,
    }
    assert numbers(answer) == [8, 9, 10]
    # A position just before the oldest record has lost nothing.
    assert face.read("orders", from_seq=7)["tombstone"] is None


def test_records_of_a_feed_deleted_by_a_user_are_not_reported_as_a_gap_c2_20(face: Face) -> None:
    """A number and a tag can be combined. The answer is the state afterwards."""
    face.append("orders", [{"data": n, "tag": "odd" if n % 2 else "even"} for n in range(1, 8)])
    face.append("orders", texts("without a tag"))
    left = list(range(1, 9))
    for asked, deleted in (
        ({"match": ["tag", "Eq", "none"]}, []),
        ({"before_seq": 3}, [1, 2]),
        ({"match": ["tag", "Glob", "o*"], "before_seq": 5}, [3]),
        ({"match": ["tag", "Eq", "odd"]}, [5, 7]),
        ({"match": ["tag", "Glob", "e*"]}, [4, 6]),
        ({"before_seq": 9}, [8]),
    ):
        told = face.delete_records("orders", **asked)
        state = face.get_topic("orders")
        kept = {name: state[name] for name in ("earliest_seq", "head_seq", "count", "bytes")}
        assert told == {"topic": "orders", "deleted": len(deleted), **kept}
        left = [number for number in left if number not in deleted]
        answer = face.read("orders")
        assert (answer["tombstone"], numbers(answer)) == (None, left)
        assert answer["earliest_seq"] == kept["earliest_seq"] == min(left, default=9)
