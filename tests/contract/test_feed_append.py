"""Appending: C2.6, C2.7."""

from __future__ import annotations

from typing import Any

import pytest

from pullstream_protocol.clock import ManualClock
from tests.contract.face import Face, FaceError, refused, texts

KEY = "4f9c"


def test_the_records_of_a_feed_are_numbered_from_one_without_holes_c2_6(face: Face) -> None:
    first = face.append("orders", [{"data": {"type": "comment"}, "tag": "user-1042:msg-5"}])
    assert first == {
        "topic": "orders", "first_seq": 1, "last_seq": 1, "seqs": [1], "head_seq": 1,
        "count": 1, "created": True, "deduped": False,
    }  # fmt: skip
    assert face.append("orders", texts(2, 3, 4)) == {
        "topic": "orders", "first_seq": 2, "last_seq": 4, "seqs": [2, 3, 4], "head_seq": 4,
        "count": 3, "created": False, "deduped": False,
    }  # fmt: skip


def test_an_append_with_a_used_idempotency_key_gets_the_answer_of_the_first_append_c2_7(
    face: Face,
) -> None:
    first = face.append("orders", texts("a", "b"), idempotency_key=KEY)
    face.append("orders", texts("c"))
    again = face.append("orders", texts("a", "b"), idempotency_key=KEY)
    assert (again["seqs"], again["deduped"]) == (first["seqs"], True)
    assert (again["head_seq"], face.get_topic("orders")["count"]) == (3, 3)


def test_the_idempotency_key_of_an_append_expires_after_the_idempotency_window_c2_7(
    face: Face, clock: ManualClock
) -> None:
    face.append("orders", texts("a"), idempotency_key=KEY)
    clock.advance(119.9)
    assert face.append("orders", texts("a"), idempotency_key=KEY)["deduped"] is True
    clock.advance(0.2)
    later = face.append("orders", texts("a"), idempotency_key=KEY)
    assert (later["deduped"], later["seqs"]) == (False, [2])


def test_an_idempotency_window_of_zero_disables_the_deduplication_of_appends_c2_7(
    face: Face,
) -> None:
    face.put_topic("orders", idempotency_window_ms=0)
    face.append("orders", texts("a"), idempotency_key=KEY)
    assert face.append("orders", texts("a"), idempotency_key=KEY)["seqs"] == [2]


def test_an_idempotency_key_of_one_topic_does_not_affect_appends_to_another_topic_c2_7(
    face: Face,
) -> None:
    face.append("one", texts("a"), idempotency_key=KEY)
    assert face.append("two", texts("a"), idempotency_key=KEY)["deduped"] is False


def test_the_idempotency_key_of_a_refused_append_can_be_used_again_c2_7(
    face: Face, clock: ManualClock
) -> None:
    face.put_topic("orders", cap_records=1, ttl_ms=1000, discard="reject")
    face.append("orders", texts("a"))
    with pytest.raises(FaceError):
        face.append("orders", texts("b"), idempotency_key=KEY)
    clock.advance(2)
    assert face.append("orders", texts("b"), idempotency_key=KEY)["deduped"] is False


@pytest.mark.parametrize(
    "value", [None, True, 0, -1.5, "", 'ä\n\u2028"', [], {}, {"a": [1, {"b": None}]}]
)
def test_a_feed_read_returns_any_json_data_of_a_record_unchanged_c2_7(
    face: Face, value: Any
) -> None:
    face.append("orders", [{"data": value, "tag": "t", "node": "n"}])
    (record,) = face.read("orders", include_tags=True)["records"]
    assert (record["data"], record["$tag"], record["$node"]) == (value, "t", "n")


def test_a_batch_of_feed_records_is_appended_as_a_whole_or_not_at_all_c2_7(face: Face) -> None:
    face.append("orders", texts("first"))
    with refused(400):
        face.append("orders", [{"data": 1}, {"data": 2, "tag": "t" * 257}, {"data": 3}])
    assert face.get_topic("orders")["head_seq"] == 1


@pytest.mark.parametrize(
    ("fits", "does_not"),
    [
        ([{"data": 1, "tag": "t" * 256}], [{"data": 1, "tag": "t" * 257}]),
        ([{"data": 1, "node": "n" * 128}], [{"data": 1, "node": "n" * 129}]),
        # The quotes of a JSON string count as part of its text.
        (texts("x" * (2**20 - 2)), texts("x" * (2**20 - 1))),
        (texts(*[0] * 10_000), texts(*[0] * 10_001)),
    ],
    ids=["tag", "node", "record", "batch"],
)
def test_a_feed_refuses_an_append_that_exceeds_a_size_limit_c2_7(
    face: Face, fits: Any, does_not: Any
) -> None:
    assert face.append("orders", fits)["count"] == len(fits)
    with pytest.raises(FaceError) as refused:
        face.append("orders", does_not)
    assert refused.value.status in (400, 413)
    assert face.get_topic("orders")["head_seq"] == len(fits)
