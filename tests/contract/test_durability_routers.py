"""Routers after restarts and crashes: settings and unforwarded records (C2.10 to C2.13)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import FACES
from tests.contract.face import Face, texts
from tests.contract.lives import Lives


@pytest.fixture(params=FACES)
def lives(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lives]:
    lives = Lives(tmp_path / "data", request.param, durability="fsync")
    yield lives
    lives.end()


def data_in(face: Face, topic: str, **params: Any) -> list[Any]:
    return [record["data"] for record in face.read(topic, **params)["records"]]


def test_a_router_continues_after_a_broker_restart_without_duplicate_records_c2_10(
    lives: Lives,
) -> None:
    """The router's settings and numbers are unchanged, and no record is copied twice."""
    face = lives.face
    face.put_topic("feed")
    face.put_router("feed-to-web", source="feed", dest="web", filter=["tag", "Glob", "a*"])
    face.append("feed", [{"data": 1, "tag": "a"}, {"data": 2, "tag": "b"}])
    before = face.get_router("feed-to-web")
    face = lives.restart()
    assert face.get_router("feed-to-web") == before
    face.append("feed", [{"data": 3, "tag": "aa"}])
    assert data_in(face, "web") == [1, 3]


def test_a_router_that_waits_for_room_in_its_destination_continues_after_a_restart_c2_11(
    lives: Lives,
) -> None:
    """The router remembers the position at which it stopped."""
    face = lives.face
    face.put_topic("feed")
    face.put_topic("web", cap_records=1, discard="reject")
    face.put_router("feed-to-web", source="feed", dest="web")
    face.append("feed", texts(1, 2, 3))
    face = lives.restart()
    assert data_in(face, "web") == [1]
    face.put_topic("web", cap_records=9, discard="reject")
    assert data_in(face, "web") == [1, 2, 3]


def test_records_trimmed_from_a_router_source_are_reported_as_a_gap_after_a_restart_c2_13(
    lives: Lives,
) -> None:
    """The source was trimmed before the restart, and by the restart."""
    face = lives.face
    face.put_topic("feed", cap_records=1)
    face.put_topic("web", cap_records=1, discard="reject")
    face.put_router("feed-to-web", source="feed", dest="web")
    for number in range(1, 5):
        face.append("feed", texts(number))
    face.put_topic("web", cap_records=2, discard="reject")
    told = face.read("web", from_seq=1)
    gap = told["tombstone"]
    assert (gap["gap_from"], gap["gap_to"], gap["reason"]) == (2, 3, "source_trim")
    face = lives.restart()
    assert face.read("web", from_seq=1) == told
    assert data_in(face, "web", from_seq=0) == [1]


def test_a_router_reports_records_lost_from_its_memory_source_as_a_source_trim_gap_c2_13(
    lives: Lives,
) -> None:
    """Readers of the destination get a gap with the number of lost records."""
    face = lives.face
    face.put_topic("feed", durability="memory")
    face.put_topic("web", cap_records=1, discard="reject")
    face.put_router("feed-to-web", source="feed", dest="web")
    face.append("feed", texts(1, 2, 3))
    face = lives.restart()
    face.put_topic("web", cap_records=9, discard="reject")
    face.append("feed", texts(4))
    gap = face.read("web", from_seq=1)["tombstone"]
    assert (gap["gap_from"], gap["gap_to"], gap["reason"]) == (2, 3, "source_trim")
    assert data_in(face, "web", from_seq=3) == [4]


def test_a_router_copies_every_record_at_least_once_despite_a_broker_crash_c2_10(
    lives: Lives,
) -> None:
    """The order is kept, also through a chain of routers."""
    face = lives.face
    face.put_topic("feed")
    face.put_router("feed-to-web", source="feed", dest="web")
    face.put_topic("web")
    face.put_router("web-to-mail", source="web", dest="mail")
    numbers = []
    for life in range(3):
        for number in range(life * 10, life * 10 + 10):
            face.append("feed", texts(number))
            numbers.append(number)
        face = lives.crash()
        for topic in ("web", "mail"):
            copied = data_in(face, topic)
            assert list(dict.fromkeys(copied)) == numbers
            assert face.read(topic, from_seq=1)["tombstone"] is None


def test_deleted_routers_stay_deleted_after_a_broker_restart_c2_10(lives: Lives) -> None:
    """One router is deleted by name, and one with its topic."""
    face = lives.face
    for topic in ("feed", "other"):
        face.put_topic(topic)
        face.put_router(f"{topic}-copies", source=topic, dest=f"{topic}-copy")
    face.delete_router("feed-copies")
    face.delete_topic("other")
    face = lives.restart()
    assert not face.list_routers()
