"""Routers (C2.9 to C2.14): records appended to one topic are copied to another."""

from __future__ import annotations

from typing import Any

import pytest

from pullstream_emulator import Emulator
from pullstream_protocol.clock import ManualClock
from tests.contract.face import Face, FaceError, Json, data_of, refused, texts


def route(face: Face, source: str, dest: str, name: str = "", **config: Any) -> Json:
    return face.put_router(name or f"{source}-to-{dest}", source=source, dest=dest, **config)


def data_in(face: Face, topic: str, **params: Any) -> list[Any]:
    return [record["data"] for record in face.read(topic, **params)["records"]]


def test_the_answer_to_creating_a_router_contains_its_default_settings_c2_9(face: Face) -> None:
    """Only records appended after its creation are copied."""
    face.append("feed", texts("before"))
    made = route(face, "feed", "web")
    assert made == {
        "router": "feed-to-web",
        "created": True,
        "source": "feed",
        "dest": "web",
        "preserve_node": True,
        "preserve_tag": True,
        "filter": None,
        "allow_cycle": False,
    }
    face.append("feed", texts("one", "two"))
    face.append("feed", texts("three"))
    assert data_in(face, "web") == ["one", "two", "three"]


def test_a_router_copies_messages_published_by_google_clients_c2_9(
    face: Face, emulator: Emulator
) -> None:
    """A publish counts as an append."""
    face.put_topic("feed")
    route(face, "feed", "web")
    emulator.publish("projects/default/topics/feed", '"hello"')
    assert data_in(face, "web") == ["hello"]


def test_the_first_record_copied_by_a_router_creates_a_missing_destination_topic_c2_10(
    face: Face,
) -> None:
    """The destination has the default settings of a topic, and does not exist before."""
    face.put_topic("feed")
    route(face, "feed", "web")
    with refused(404):
        face.get_topic("web")
    face.append("feed", texts(1))
    made = face.get_topic("web")
    assert (made["count"], made["config"]["ttl_ms"]) == (1, 0)


def test_a_router_without_create_dest_is_refused_if_its_destination_topic_is_missing_c2_10(
    face: Face,
) -> None:
    """Without the destination the router is refused."""
    face.put_topic("feed")
    with refused(404, "not_found"):
        route(face, "feed", "web", create_dest=False)
    face.put_topic("web")
    assert route(face, "feed", "web", create_dest=False)["created"]


def test_a_router_with_a_missing_source_topic_is_refused_c2_10(face: Face) -> None:
    """A source that does not exist is probably a misspelled name."""
    with refused(404):
        route(face, "feed", "web")
    with pytest.raises(FaceError):
        face.get_topic("feed")


def test_records_copied_by_a_router_keep_the_order_of_the_source_c2_10(face: Face) -> None:
    """The order holds over many appends, for each of several destinations."""
    face.put_topic("feed")
    for dest in ("web", "mobile", "mail"):
        route(face, "feed", dest)
    for first in range(0, 60, 6):
        face.append("feed", texts(*range(first, first + 6)))
    for dest in ("web", "mobile", "mail"):
        assert data_in(face, dest) == list(range(60))


def test_putting_an_identical_router_again_does_not_change_its_position_c2_10(face: Face) -> None:
    """The router continues at its position. Changed settings apply from then on."""
    face.put_topic("feed")
    made = route(face, "feed", "web")
    face.append("feed", texts(1))
    assert route(face, "feed", "web") == {**made, "created": False}
    changed = route(face, "feed", "web", filter=["tag", "Eq", "yes"])
    assert (changed["created"], changed["filter"]) == (False, ["tag", "Eq", "yes"])
    face.append("feed", [{"data": 2, "tag": "no"}, {"data": 3, "tag": "yes"}])
    assert data_in(face, "web") == [1, 3]
    told = face.get_router("feed-to-web")
    assert (told["forwarded_total"], told["position"]) == (2, 3)


def test_a_deleted_router_copies_no_further_records_c2_10(face: Face) -> None:
    """Existing copies stay. A second delete succeeds."""
    face.put_topic("feed")
    route(face, "feed", "web")
    face.append("feed", texts(1))
    assert face.delete_router("feed-to-web") == {"router": "feed-to-web", "deleted": True}
    assert face.delete_router("feed-to-web") == {"router": "feed-to-web", "deleted": False}
    face.append("feed", texts(2))
    assert data_in(face, "web") == [1]
    with refused(404):
        face.get_router("feed-to-web")


@pytest.mark.parametrize("deleted", ["feed", "web"])
def test_deleting_a_topic_deletes_the_routers_from_and_to_that_topic_c2_10(
    face: Face, deleted: str
) -> None:
    """Routers from the topic and to it are deleted. A topic created again has no routers."""
    face.put_topic("feed")
    face.put_topic("web")
    route(face, "feed", "web")
    face.put_topic("other")
    route(face, "other", "elsewhere")
    face.delete_topic(deleted)
    assert [router["router"] for router in face.list_routers()] == ["other-to-elsewhere"]
    face.put_topic(deleted)
    face.append("feed", texts(1))
    assert not data_in(face, "web")


def test_the_list_of_routers_can_be_filtered_by_source_or_destination_c2_10(face: Face) -> None:
    """Without a filter all routers of the project are listed."""
    for topic in ("feed", "mobile"):
        face.put_topic(topic)
    route(face, "feed", "web")
    route(face, "feed", "mobile")
    route(face, "mobile", "mail")
    assert len(face.list_routers()) == 3
    assert [r["dest"] for r in face.list_routers(source="feed")] == ["mobile", "web"]
    assert [r["source"] for r in face.list_routers(dest="mail")] == ["mobile"]


def test_a_router_evicts_the_oldest_records_of_a_full_destination_with_discard_old_c2_11(
    face: Face,
) -> None:
    """The forward succeeds.

    A slow reader of the destination gets a tombstone; other topics are unchanged.
    """
    face.put_topic("feed")
    face.put_topic("web", cap_records=2)
    face.put_topic("mobile")
    for dest in ("web", "mobile"):
        route(face, "feed", dest)
    watch = face.watch({"web": {"from_seq": 0}})
    assert watch.next()[0] == "caught-up"
    watch.close()
    face.append("feed", texts(1, 2, 3, 4, 5))
    watch.reopen()
    kind, _, gap = watch.next()
    assert (kind, gap["gap_from"], gap["gap_to"]) == ("tombstone", 1, 3)
    assert data_of(watch.next()) == [4, 5]
    watch.close()
    assert data_in(face, "mobile") == [1, 2, 3, 4, 5]


def test_a_router_waits_while_its_destination_with_discard_reject_is_full_c2_11(
    face: Face, clock: ManualClock
) -> None:
    """No record is dropped. The source still accepts records, and other routers continue."""
    face.put_topic("feed")
    face.put_topic("web", cap_records=2, discard="reject")
    for dest in ("web", "mobile"):
        route(face, "feed", dest)
    for number in range(1, 6):
        face.append("feed", texts(number))
    assert data_in(face, "web") == [1, 2]
    assert data_in(face, "mobile") == [1, 2, 3, 4, 5]
    assert face.get_router("feed-to-web")["position"] == 2
    face.delete_records("web", before_seq=2)
    assert data_in(face, "web") == [2, 3]
    face.put_topic("web", cap_records=100, discard="reject")
    assert data_in(face, "web") == [2, 3, 4, 5]


def test_a_router_that_waits_for_room_continues_when_destination_records_expire_c2_11(
    face: Face, clock: ManualClock
) -> None:
    """A destination that refuses records has room again when old ones expire."""
    face.put_topic("feed")
    face.put_topic("web", cap_records=1, discard="reject", ttl_ms=1000)
    route(face, "feed", "web")
    face.append("feed", texts(1, 2, 3))
    seen = []
    for _ in range(3):
        seen += data_in(face, "web", from_seq=face.get_topic("web")["earliest_seq"] - 1)
        clock.advance(1.2)
    assert seen == [1, 2, 3]


def test_records_copied_by_a_router_have_new_sequence_numbers_and_times_c2_11(
    face: Face, clock: ManualClock
) -> None:
    """The time to live starts at the forward."""
    face.put_topic("feed")
    face.append("feed", texts("only in the source"))
    face.put_topic("web", ttl_ms=5000, cap_records=1, discard="reject")
    route(face, "feed", "web")
    face.append("feed", texts("first", "second"))
    (first,) = face.read("web")["records"]
    original = face.read("feed")["records"][1]
    assert (first["$seq"], original["$seq"]) == (1, 2)
    clock.advance(5.2)
    (second,) = face.read("web", from_seq=1)["records"]
    assert (second["data"], second["$seq"]) == ("second", 2)
    assert second["$ts"] >= first["$ts"] + 5000
    clock.advance(4)
    assert data_in(face, "web", from_seq=1) == ["second"]


def test_a_router_copies_only_records_that_match_the_routers_filter_c2_12(face: Face) -> None:
    """Routers have the filter language of subscriptions. It covers the design's Eq and Glob."""
    face.put_topic("feed")
    route(face, "feed", "web", filter=["tag", "Glob", "public:*"])
    route(face, "feed", "mail", filter=["tag", "Eq", "public:mail"])
    tags = ["public:mail", "private:mail", "public:", None, "public"]
    records = [{"data": tag, **({"tag": tag} if tag else {})} for tag in tags]
    face.append("feed", records)
    assert data_in(face, "web") == ["public:mail", "public:"]
    assert data_in(face, "mail") == ["public:mail"]
    assert face.get_router("feed-to-web") == {
        "router": "feed-to-web", "source": "feed", "dest": "web", "preserve_node": True,
        "preserve_tag": True, "filter": ["tag", "Glob", "public:*"], "allow_cycle": False,
        "create_dest": True, "forwarded_total": 2, "position": 5,
    }  # fmt: skip


@pytest.mark.parametrize("broken", [["tag", "Glob", "a*b"], ["tag", "Like", "x"], ["colour"]])
def test_a_router_with_an_invalid_filter_is_refused_c2_12(face: Face, broken: Any) -> None:
    """No router is created."""
    face.put_topic("feed")
    with refused(400):
        route(face, "feed", "web", filter=broken)
    assert not face.list_routers()


def test_a_router_from_a_topic_to_the_same_topic_is_refused_c2_13(face: Face) -> None:
    """Such a router is refused even with allow_cycle."""
    face.put_topic("feed")
    for allow in (False, True):
        with refused(400):
            route(face, "feed", "feed", allow_cycle=allow)


def test_a_router_that_would_close_a_cycle_is_refused_with_the_path_of_the_cycle_c2_13(
    face: Face,
) -> None:
    """No router is created or changed."""
    for topic in ("red", "green", "blue"):
        face.put_topic(topic)
    route(face, "red", "green")
    route(face, "green", "blue")
    with pytest.raises(FaceError) as refused:
        route(face, "blue", "red")
    assert refused.value.status == 409
    assert "red -> green -> blue -> red" in refused.value.message
    assert len(face.list_routers()) == 2


def test_routers_in_an_allowed_cycle_copy_a_record_at_most_eight_times_c2_13(face: Face) -> None:
    """Each topic has one copy of the record, and the broker becomes idle."""
    for topic in ("red", "green"):
        face.put_topic(topic)
    route(face, "red", "green")
    route(face, "green", "red", allow_cycle=True)
    face.append("red", texts("round"))
    assert data_in(face, "red") == ["round"] * 5
    assert data_in(face, "green") == ["round"] * 4
    face.append("green", texts("again"))
    assert data_in(face, "green", from_seq=4) == ["again"] * 5


def test_a_second_router_to_the_same_destination_topic_is_refused_c2_13(face: Face) -> None:
    """A destination has the order of one source, and its gaps have one cause."""
    for topic in ("feed", "other"):
        face.put_topic(topic)
    route(face, "feed", "web")
    with refused(409, "router_fan_in"):
        route(face, "other", "web")
    face.delete_router("feed-to-web")
    assert route(face, "other", "web")["created"]


def test_a_router_reports_records_lost_before_their_copy_as_a_source_trim_gap_c2_13_c2_20(
    face: Face,
) -> None:
    """Readers of the destination get a gap with the number of lost records, at their position."""
    face.put_topic("feed", cap_records=3)
    face.put_topic("web", cap_records=2, discard="reject")
    route(face, "feed", "web")
    face.append("feed", texts(1, 2))
    face.append("feed", texts(*range(3, 11)))
    watch = face.watch({"web": {"from_seq": 0}})
    assert data_of(watch.next()) == [1, 2]
    assert watch.next()[0] == "caught-up"
    face.put_topic("web", cap_records=100, discard="reject")
    kind, token, gap = watch.next()
    assert (kind, gap["reason"]) == ("tombstone", "source_trim")
    assert (gap["gap_from"], gap["gap_to"]) == (3, 7)
    kind, _, records = watch.next()
    assert [record["data"] for record in records["records"]] == [8, 9, 10]
    watch.reopen(token)
    assert data_of(watch.next()) == [8, 9, 10]
    watch.close()


def test_records_deleted_in_the_source_of_a_router_are_no_gap_in_the_destination_c2_13(
    face: Face,
) -> None:
    """Records that the filter would have excluded are no gap either."""
    face.put_topic("feed")
    face.put_topic("web", cap_records=1, discard="reject")
    route(face, "feed", "web")
    face.append("feed", texts(1, 2, 3, 4))
    face.delete_records("feed", before_seq=4)
    face.put_topic("web", cap_records=10, discard="reject")
    answer = face.read("web")
    assert [record["data"] for record in answer["records"]] == [1, 4]
    assert answer["tombstone"] is None


def test_a_reader_that_excludes_its_node_gets_no_own_records_back_through_routers_c2_14(
    face: Face,
) -> None:
    """Two masters have a topic each, with routers in both directions.

    There is no echo, and the cursor moves on.
    """
    for topic in ("east", "west"):
        face.put_topic(topic)
    route(face, "east", "west")
    route(face, "west", "east", allow_cycle=True)
    face.append("east", texts("from east"), node="east")
    face.append("west", texts("from west"), node="west")
    for node, other in (("east", "west"), ("west", "east")):
        answer = face.read(node, node=node)
        assert {record["data"] for record in answer["records"]} == {f"from {other}"}
        assert answer["next_from_seq"] == answer["head_seq"]


def test_a_router_can_be_set_to_copy_records_without_their_node_or_their_tag_c2_14(
    face: Face,
) -> None:
    """Node and tag can be dropped independently."""
    face.put_topic("feed")
    route(face, "feed", "no-node", preserve_node=False)
    route(face, "feed", "no-tag", preserve_tag=False)
    route(face, "feed", "both")
    face.append("feed", [{"data": 1, "tag": "t", "node": "n"}])
    shown = {}
    for topic in ("no-node", "no-tag", "both"):
        (record,) = face.read(topic, include_tags=True)["records"]
        shown[topic] = (record.get("$node"), record.get("$tag"))
    assert shown == {"no-node": (None, "t"), "no-tag": ("n", None), "both": ("n", "t")}
