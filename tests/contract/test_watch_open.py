"""Opening a watch, and its frames: C2.15 to C2.17, C2.25 to C2.27."""

from __future__ import annotations

from tests.contract.face import Face, data_of, expect, next_records, refused, texts


def test_opening_a_watch_returns_its_id_and_a_cursor_for_each_topic_c2_15(face: Face) -> None:
    face.append("one", texts(1, 2))
    face.append("two", texts("a", "b", "c"))
    watch = face.watch({"one": {"from_seq": 1}, "two": {"tail": True}})
    assert len(watch.wid) >= 16
    assert watch.topics == {
        "one": {"from_seq": 1, "head_seq": 2, "earliest_seq": 1},
        "two": {"from_seq": 3, "head_seq": 3, "earliest_seq": 1},
    }
    events = [watch.next() for _ in range(3)]
    assert [(event[0], event[2]["topic"]) for event in events] == [
        ("record", "one"),
        ("caught-up", "two"),
        ("caught-up", "one"),
    ]


def test_a_watch_may_have_at_most_256_topics_c2_15(face: Face) -> None:
    names = [f"topic-{number}" for number in range(257)]
    for name in names:
        face.put_topic(name)
    watch = face.watch({name: {"tail": True} for name in names[:256]})
    assert len(watch.topics) == 256
    assert {watch.next()[2]["topic"] for _ in range(256)} == set(names[:256])
    face.append(names[200], texts("found"))
    assert data_of(watch.next()) == ["found"]
    with refused(400):
        face.watch({name: {"tail": True} for name in names})


def test_a_watch_without_topics_is_refused_c2_15(face: Face) -> None:
    with refused(400):
        face.watch({})


def test_a_watch_with_an_unknown_topic_is_refused_c2_15(face: Face) -> None:
    face.put_topic("known")
    with refused(404):
        face.watch({"known": {"tail": True}, "unknown": {"tail": True}})


def test_a_watch_started_at_the_tail_receives_only_later_records_c2_16(face: Face) -> None:
    face.append("orders", texts("before"))
    watch = face.watch({"orders": {"tail": True}})
    expect(watch, "caught-up")
    face.append("orders", texts("after"))
    assert data_of(watch.next()) == ["after"]


def test_a_watch_started_at_position_n_receives_the_records_after_record_n_c2_16(
    face: Face,
) -> None:
    face.append("orders", texts(1, 2, 3))
    assert next_records(face.watch({"orders": {"from_seq": 0}}), 3) == [1, 2, 3]
    assert next_records(face.watch({"orders": {"from_seq": 2}}), 1) == [3]


def test_a_record_event_of_a_watch_contains_the_records_and_their_sequence_range_c2_17(
    face: Face,
) -> None:
    face.append("orders", texts("a", "b"))
    watch = face.watch({"orders": {"from_seq": 0}})
    name, token, content = watch.next()
    assert (name, bool(token)) == ("record", True)
    assert {key: content[key] for key in ("topic", "from_seq", "to_seq", "head_seq")} == {
        "topic": "orders",
        "from_seq": 0,
        "to_seq": 2,
        "head_seq": 2,
    }
    assert [(record["$seq"], record["data"]) for record in content["records"]] == [
        (1, "a"),
        (2, "b"),
    ]
    assert all(isinstance(record["$ts"], int) for record in content["records"])


def test_a_watch_event_contains_at_most_the_requested_maximum_of_records_c2_17(face: Face) -> None:
    face.append("orders", texts(*range(600)))
    watch = face.watch({"orders": {"from_seq": 0}})
    assert [len(data_of(event)) for event in expect(watch, "record", "record", "record")] == [
        256,
        256,
        88,
    ]
    watch = face.watch({"orders": {"from_seq": 0}}, limit=500)
    assert [len(data_of(event)) for event in expect(watch, "record", "record")] == [500, 100]


def test_a_watch_event_stays_within_the_byte_limit_or_contains_a_single_record_c2_17(
    face: Face,
) -> None:
    face.append("orders", texts(*["x" * 1000] * 4, "y" * 5000, "z"))
    watch = face.watch({"orders": {"from_seq": 0}}, max_batch_bytes=2500)
    events = expect(watch, "record", "record", "record", "record", "caught-up")
    assert [len(data_of(event)) for event in events[:4]] == [2, 2, 1, 1]


def test_the_default_byte_limit_of_a_watch_event_is_256_kib_c2_17(face: Face) -> None:
    face.append("orders", texts(*["x" * 100_000] * 4))
    watch = face.watch({"orders": {"from_seq": 0}})
    assert [len(data_of(event)) for event in expect(watch, "record", "record")] == [2, 2]


def test_a_watch_with_include_data_false_receives_number_time_tag_and_node_c2_25(
    face: Face,
) -> None:
    face.append("orders", [{"data": {"large": 1}, "tag": "t", "node": "n", "meta": {"k": "v"}}])
    watch = face.watch({"orders": {"from_seq": 0}}, include_data=False)
    (record,) = watch.next()[2]["records"]
    time = record.pop("$ts")
    assert record == {"$seq": 1, "$tag": "t", "$node": "n"}
    assert isinstance(time, int)


def test_a_watch_sends_the_tags_of_records_only_on_request_c2_25(face: Face) -> None:
    face.append("orders", [{"data": 1, "tag": "t"}])
    (record,) = face.watch({"orders": {"from_seq": 0}}).next()[2]["records"]
    assert "$tag" not in record
    watch = face.watch({"orders": {"from_seq": 0}}, include_tags=True)
    (record,) = watch.next()[2]["records"]
    assert record["$tag"] == "t"


def test_a_watch_sends_caught_up_once_at_the_end_of_the_backlog_c2_26(face: Face) -> None:
    face.append("orders", texts(1, 2))
    watch = face.watch({"orders": {"from_seq": 0}})
    events = expect(watch, "record", "caught-up")
    assert events[1][2] == {"topic": "orders", "head_seq": 2}
    for number in (3, 4):
        face.append("orders", texts(number))
        assert data_of(watch.next()) == [number]
    # The reader is behind again, by more records than fit into one event.
    face.append("orders", texts(*range(300)))
    expect(watch, "record", "record", "caught-up")


def test_a_watch_of_an_empty_topic_sends_caught_up_at_once_c2_26(face: Face) -> None:
    face.put_topic("orders")
    watch = face.watch({"orders": {"from_seq": 0}})
    assert watch.next()[2] == {"topic": "orders", "head_seq": 0}


def test_a_watch_continues_for_its_other_topics_when_one_topic_is_deleted_c2_26(face: Face) -> None:
    face.put_topic("doomed")
    face.put_topic("other")
    watch = face.watch({"doomed": {"tail": True}, "other": {"tail": True}})
    expect(watch, "caught-up", "caught-up")
    face.delete_topic("doomed")
    assert watch.next()[::2] == ("topic-deleted", {"topic": "doomed"})
    # A topic created again with the same name is a different topic.
    face.append("doomed", texts("new life"))
    face.append("other", texts("goes on"))
    assert data_of(watch.next()) == ["goes on"]


def test_a_watch_that_names_its_node_receives_no_records_of_that_node_c2_26(face: Face) -> None:
    face.append("orders", [{"data": 1, "node": "a"}, {"data": 2, "node": "a"}])
    watch = face.watch({"orders": {"from_seq": 0}}, node="a")
    assert watch.next()[::2] == ("caught-up", {"topic": "orders", "head_seq": 2})
    face.append("orders", [{"data": 3, "node": "a"}])
    # There are no records to read, but the reader may resume after this position.
    assert watch.next()[::2] == ("caught-up", {"topic": "orders", "head_seq": 3})
    face.append("orders", [{"data": 4, "node": "b"}])
    assert data_of(watch.next()) == [4]


def test_a_watch_receives_records_of_its_own_node_from_a_topic_with_dedupe_node_off_c2_26(
    face: Face,
) -> None:
    face.put_topic("orders", dedupe_node=False)
    face.append("orders", [{"data": 1, "node": "a"}])
    assert next_records(face.watch({"orders": {"from_seq": 0}}, node="a"), 1) == [1]


def test_many_watches_of_one_topic_receive_records_at_their_own_pace_c2_27(face: Face) -> None:
    face.append("orders", texts(1, 2))
    watches = [face.watch({"orders": {"from_seq": seq}}) for seq in (0, 1)]
    assert [next_records(watches[0], 2), next_records(watches[1], 1)] == [[1, 2], [2]]
    for watch in watches:
        expect(watch, "caught-up")
    face.append("orders", texts(3))
    assert [data_of(watch.next()) for watch in watches] == [[3], [3]]
    assert face.get_topic("orders")["watchers"] == 2
