"""Seed 002, durability: a feed whose broker was stopped, or was killed, and is there again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.messages import pubsub_pb2 as pubsub
from tests.contract.conftest import FACES
from tests.contract.face import Face, FaceError, data_of, texts
from tests.contract.lives import Lives
from tests.subscriber.streaming.fakes import eventually


@pytest.fixture(params=FACES)
def lives(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lives]:
    lives = Lives(tmp_path / "data", request.param)
    yield lives
    lives.end()


def read(face: Face, topic: str = "feed", **params: Any) -> tuple[list[Any], Any]:
    """The data of what there is to read, and the range and reason of the gap before it."""
    answer = face.read(topic, **params)
    gap = answer["tombstone"]
    told = None if gap is None else (gap["gap_from"], gap["gap_to"], gap["reason"])
    return [record["data"] for record in answer["records"]], told


def test_c2_5_an_orderly_restart_is_no_gap(lives: Lives) -> None:
    """Settings, epoch and records are what they were, and numbers go on."""
    lives.face.put_topic("feed", cap_records=3, ttl_ms=60_000, discard="reject")
    lives.face.append("feed", [{"data": 1, "tag": "t", "node": "n"}, {"data": 2}])
    before = lives.face.get_topic("feed")
    face = lives.restart()
    assert face.get_topic("feed") == before
    assert read(face, from_seq=1) == ([2], None)
    assert face.append("feed", texts(3))["first_seq"] == 3
    with pytest.raises(FaceError) as refused:
        face.append("feed", texts(4))
    assert refused.value.status == 422


def test_c2_5_what_was_told_before_a_restart_is_told_after_it(lives: Lives) -> None:
    """Floors come back with their reasons: a reader that was away for long is not misled."""
    lives.face.put_topic("feed", cap_records=2)
    lives.face.append("feed", texts(1, 2, 3, 4, 5))
    face = lives.restart()
    gap = face.read("feed", from_seq=1)["tombstone"]
    assert (gap["gap_from"], gap["gap_to"]) == (2, 3)
    assert "cap" in (gap["reason"], gap.get("cause"))
    assert read(face, from_seq=3) == ([4, 5], None)


def test_c2_5_records_expire_while_the_broker_is_away(lives: Lives) -> None:
    """What has become too old is told as such."""
    lives.face.put_topic("feed", ttl_ms=1000)
    lives.face.append("feed", texts(1))
    lives.emulator.clock.advance(0.9)
    lives.face.append("feed", texts(2))
    lives.end()
    lives.emulator.clock.advance(0.5)
    lives.emulator.start()
    face = lives.restart()
    data, gap = read(face, from_seq=0)
    assert (data, gap is not None and gap[:2]) == ([2], (1, 1))


def test_c2_5_what_was_deleted_stays_deleted_and_silent(lives: Lives) -> None:
    """At the front of the window, and in the middle."""
    lives.face.append("feed", [{"data": number, "tag": str(number % 3)} for number in range(9)])
    lives.face.delete_records("feed", before_seq=3)
    lives.face.delete_records("feed", match=["tag", "Eq", "0"])
    face = lives.restart()
    assert read(face, from_seq=0) == ([2, 4, 5, 7, 8], None)
    face = lives.crash()
    assert read(face, from_seq=0, limit=5) == ([2, 4, 5, 7, 8], None)


def test_c2_5_of_class_memory_only_the_numbers_survive(lives: Lives) -> None:
    """Who was not at the head is told what is lost; who was, has lost nothing."""
    lives.face.put_topic("feed", durability="memory")
    lives.face.append("feed", texts(1, 2, 3))
    face = lives.restart()
    assert face.get_topic("feed")["config"]["durability"] == "memory"
    assert read(face, from_seq=1) == ([], (2, 3, "from_seq_too_old"))
    assert read(face, from_seq=3) == ([], None)
    assert face.append("feed", texts(4))["first_seq"] == 4
    assert read(face, from_seq=3) == ([4], None)


def test_c2_5_of_class_fsync_a_crash_loses_nothing(lives: Lives) -> None:
    """No gap is told, and no number is used again."""
    lives.face.put_topic("feed", durable=True)
    lives.face.append("feed", texts(1, 2, 3))
    face = lives.crash()
    assert read(face, from_seq=1) == ([2, 3], None)
    first = face.append("feed", texts(4))["first_seq"]
    assert first > 3
    assert read(face, from_seq=3) == ([4], None)
    face = lives.restart()
    assert read(face, from_seq=1) == ([2, 3, 4], None)


def test_c2_5_of_class_disk_a_crash_is_told(lives: Lives) -> None:
    """What was written is there. Behind it readers are told of a loss, as there may be one."""
    lives.face.append("feed", texts(1, 2, 3))
    # Changes are written in their order, and this one is waited for.
    lives.face.put_topic("other")
    face = lives.crash()
    assert read(face, from_seq=1, limit=2) == ([2, 3], None)
    head = face.get_topic("feed")["head_seq"]
    assert read(face, from_seq=3) == ([], (4, head, "from_seq_too_old"))
    assert face.append("feed", texts(4))["first_seq"] == head + 1
    watch = face.watch({"feed": {"from_seq": 2}})
    assert data_of(watch.next()) == [3]
    assert watch.next()[0] == "tombstone"
    assert data_of(watch.next()) == [4]
    watch.close()
    face = lives.restart()
    assert read(face, from_seq=head) == ([4], None)
    assert read(face, from_seq=3) == ([4], (4, head, "from_seq_too_old"))


def test_c2_5_what_came_before_a_topic_was_made_durable_is_no_silent_loss(lives: Lives) -> None:
    """Its class holds for what is appended from then on."""
    lives.face.put_topic("feed", durability="memory")
    lives.face.append("feed", texts(1, 2, 3))
    lives.face.put_topic("feed", durable=True)
    for begin_again in (lives.crash, lives.restart):
        face = begin_again()
        head = face.get_topic("feed")["head_seq"]
        assert read(face, from_seq=1) == ([], (2, head, "from_seq_too_old"))


def test_c2_2_c2_5_what_came_back_is_let_go_of_in_time(lives: Lives) -> None:
    """Though nobody reads or writes: it would take room for ever."""
    lives.face.put_topic("feed", ttl_ms=1000)
    lives.face.append("feed", texts(1))
    lives.restart()
    engine = lives.emulator.engine
    assert engine.kept_bytes > 0
    lives.emulator.clock.advance(2)
    eventually(lambda: engine.kept_bytes == 0)


def test_c2_5_label_and_setting_are_one_thing(lives: Lives) -> None:
    """A google client reads and sets the class as a label of the topic."""
    lives.face.put_topic("feed", durable=True)
    topic = "projects/default/topics/feed"
    made = lives.emulator.inspect(lambda engine: engine.get_topic(topic))
    assert made.labels["pullstream-durability"] == "fsync"
    request = pubsub.UpdateTopicRequest(topic=pubsub.Topic(name=topic))
    request.topic.labels["pullstream-durability"] = "memory"
    request.update_mask.paths.append("labels")
    lives.emulator.inspect(lambda engine: engine.update_topic(request))
    face = lives.restart()
    assert face.get_topic("feed")["config"]["durability"] == "memory"


def test_c2_5_a_topic_made_again_is_another_life_after_a_restart_too(lives: Lives) -> None:
    """Its reader is told by the epoch."""
    lives.face.append("feed", texts("old"))
    old = lives.face.read("feed")["epoch"]
    lives.face.delete_topic("feed")
    lives.face.append("feed", texts("new"))
    face = lives.restart()
    answer = face.read("feed", from_seq=1, epoch=old)
    assert answer["tombstone"]["reason"] == "recreated"
    assert [record["data"] for record in answer["records"]] == ["new"]


def test_c2_5_sessions_and_idempotency_keys_end_with_the_broker(lives: Lives) -> None:
    """A watch is made anew; an append that is repeated across a restart is there twice."""
    lives.face.append("feed", texts(1), idempotency_key="key")
    watch = lives.face.watch({"feed": {"from_seq": 0}})
    data_of(watch.next())
    watch.close()
    face = lives.restart()
    assert not face.append("feed", texts(1), idempotency_key="key")["deduped"]
