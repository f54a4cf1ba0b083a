"""Topics and their settings: C2.1, C2.8."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.face import Face, refused, texts

DEFAULTS = {
    "ttl_ms": 0,
    "cap_records": 0,
    "cap_bytes": 0,
    "discard": "old",
    "durable": False,
    "auto_create": True,
    "idempotency_window_ms": 120_000,
    "dedupe_node": True,
}


def test_a_put_of_a_feed_creates_its_topic_and_is_answered_with_all_settings_c2_1(
    face: Face,
) -> None:
    asked = {"ttl_ms": 5000, "cap_records": 10_000, "discard": "old", "durable": False}
    made = face.put_topic("notifications", **asked)
    expected = DEFAULTS | {"ttl_ms": 5000, "cap_records": 10_000, "durability": "disk"}
    assert made == {"topic": "notifications", "created": True, "config": expected}
    made = face.put_topic("others")
    assert made["config"] == DEFAULTS | {"durability": made["config"]["durability"]}
    assert face.put_topic("others") == made | {"created": False}


def test_durable_true_selects_class_fsync_and_durable_false_class_disk_of_a_feed_c2_1(
    face: Face,
) -> None:
    """An explicit class takes precedence."""
    for name, asked, durability in (
        ("one", {"durable": False}, "disk"),
        ("two", {"durable": True}, "fsync"),
        ("three", {"durability": "memory"}, "memory"),
        ("four", {"durable": True, "durability": "disk"}, "disk"),
    ):
        config = face.put_topic(name, **asked)["config"]
        assert (config["durability"], config["durable"]) == (durability, durability == "fsync")


def test_an_identical_second_put_of_a_feed_changes_no_setting_and_no_record_c2_1(
    face: Face,
) -> None:
    settings = {
        "ttl_ms": 0, "cap_records": 3, "cap_bytes": 1_000_000, "discard": "reject",
        "durable": True, "durability": "fsync", "idempotency_window_ms": 0, "dedupe_node": False,
    }  # fmt: skip
    expected = settings | {"auto_create": True}
    assert face.put_topic("notifications", **settings)["config"] == expected
    face.append("notifications", texts(1, 2))
    again = face.put_topic("notifications", **settings)
    assert again == {"topic": "notifications", "created": False, "config": expected}
    assert face.get_topic("notifications")["count"] == 2


def test_a_second_put_of_a_feed_with_other_settings_updates_the_settings_c2_1(face: Face) -> None:
    face.put_topic("notifications", ttl_ms=5000, cap_records=10)
    face.append("notifications", texts(*range(5)))
    changed = face.put_topic("notifications", cap_records=2)
    # A put sets all settings. A setting that it omits gets its default again.
    assert (changed["created"], changed["config"]["ttl_ms"]) == (False, 0)
    assert face.get_topic("notifications")["earliest_seq"] == 4


def test_a_limit_of_a_feed_set_to_zero_is_turned_off_c2_1(face: Face) -> None:
    face.put_topic("notifications", ttl_ms=0, cap_records=0, cap_bytes=0)
    for _ in range(3):
        face.append("notifications", texts(*range(1000)))
    assert face.get_topic("notifications")["count"] == 3000


@pytest.mark.parametrize("name", ["9lives", "x", "goog-topic", "a b" * 200])
def test_creating_a_feed_with_an_invalid_topic_name_is_refused_c2_1(face: Face, name: str) -> None:
    with refused(400):
        face.put_topic(name)


@pytest.mark.parametrize("config", [{"cap_records": -1}, {"cap_bytes": -1}, {"ttl_ms": -1}])
def test_a_put_of_a_feed_with_invalid_settings_is_refused_and_creates_no_topic_c2_1(
    face: Face, config: Any
) -> None:
    with refused(400):
        face.put_topic("notifications", **config)
    assert face.list_topics() == []


def test_the_list_of_feeds_contains_the_sequence_numbers_of_each_feed_c2_1(face: Face) -> None:
    face.put_topic("bbb")
    face.append("aaa", texts(1, 2, 3))
    listed = face.list_topics()
    assert [(topic["topic"], topic["head_seq"]) for topic in listed] == [("aaa", 3), ("bbb", 0)]
    assert listed[0] == face.get_topic("aaa")


def test_the_state_of_a_feed_contains_its_size_record_range_and_number_of_watchers_c2_1(
    face: Face,
) -> None:
    """A deleted topic has no state, and a second delete finds nothing."""
    face.put_topic("orders", cap_records=2)
    face.append("orders", texts("a", "b", "c"))
    state = face.get_topic("orders")
    assert state.pop("epoch").isdigit()
    assert state.pop("bytes") > 0
    assert state.pop("config")["cap_records"] == 2
    assert state == {
        "topic": "orders", "head_seq": 3, "earliest_seq": 2, "next_seq": 4, "count": 2,
        "watchers": 0,
    }  # fmt: skip
    assert face.delete_topic("orders") == {"topic": "orders", "deleted": True}
    assert face.delete_topic("orders") == {"topic": "orders", "deleted": False}
    with refused(404, "not_found"):
        face.get_topic("orders")


def test_an_append_to_a_missing_topic_creates_the_topic_c2_8(face: Face) -> None:
    assert face.append("orders", texts(1))["created"] is True
    assert face.append("orders", texts(2))["created"] is False
    assert face.get_topic("orders")["count"] == 2


def test_an_append_with_create_false_to_a_missing_topic_is_refused_c2_8(face: Face) -> None:
    with refused(404, "not_found"):
        face.append("orders", texts(1), create=False)
    assert face.list_topics() == []


def test_a_refused_append_to_a_missing_topic_creates_no_topic_c2_8(face: Face) -> None:
    with refused(400):
        face.append("orders", [])
    assert face.list_topics() == []


def test_feed_reads_and_watches_never_create_a_missing_topic_c2_8(face: Face) -> None:
    for attempt in (
        lambda: face.read("orders"),
        lambda: face.watch({"orders": {"tail": True}}),
        lambda: face.get_topic("orders"),
        lambda: face.delete_records("orders", before_seq=1),
    ):
        with refused(404):
            attempt()
    assert face.list_topics() == []
