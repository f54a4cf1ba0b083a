"""Durability of feeds (C2.5): a feed after a stop or kill of its broker and a new start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.contract.conftest import FACES
from tests.contract.face import Face, data_of, refused, texts
from tests.contract.lives import Lives
from tests.subscriber.streaming.fakes import eventually


@pytest.fixture(params=FACES)
def lives(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lives]:
    lives = Lives(tmp_path / "data", request.param)
    yield lives
    lives.end()


def read(face: Face, topic: str = "feed", **params: Any) -> tuple[list[Any], Any]:
    """Return the data of the readable records, and the range and reason of the gap before them."""
    answer = face.read(topic, **params)
    gap = answer["tombstone"]
    told = None if gap is None else (gap["gap_from"], gap["gap_to"], gap["reason"])
    return [record["data"] for record in answer["records"]], told


def test_a_feed_has_all_its_records_and_no_gap_after_an_orderly_broker_restart_c2_5(
    lives: Lives,
) -> None:
    """Settings, epoch and records are unchanged, and the numbers continue."""
    lives.face.put_topic("feed", cap_records=3, ttl_ms=60_000, discard="reject")
    lives.face.append("feed", [{"data": 1, "tag": "t", "node": "n"}, {"data": 2}])
    before = lives.face.get_topic("feed")
    face = lives.restart()
    assert face.get_topic("feed") == before
    assert read(face, from_seq=1) == ([2], None)
    assert face.append("feed", texts(3))["first_seq"] == 3
    with refused(422):
        face.append("feed", texts(4))


def test_gaps_of_a_feed_keep_their_reasons_across_a_broker_restart_c2_5(lives: Lives) -> None:
    """Gaps keep their reasons, so a reader that was away for long gets the correct one."""
    lives.face.put_topic("feed", cap_records=2)
    lives.face.append("feed", texts(1, 2, 3, 4, 5))
    face = lives.restart()
    gap = face.read("feed", from_seq=1)["tombstone"]
    assert (gap["gap_from"], gap["gap_to"]) == (2, 3)
    assert "cap" in (gap["reason"], gap.get("cause"))
    assert read(face, from_seq=3) == ([4, 5], None)


def test_feed_records_that_expire_while_the_broker_is_stopped_are_reported_as_a_gap_c2_5(
    lives: Lives,
) -> None:
    """The gap has the reason that the records were too old."""
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


def test_deleted_feed_records_stay_deleted_without_a_gap_after_a_broker_restart_c2_5(
    lives: Lives,
) -> None:
    """Records at the front of the window and in its middle were deleted."""
    lives.face.append("feed", [{"data": number, "tag": str(number % 3)} for number in range(9)])
    lives.face.delete_records("feed", before_seq=3)
    lives.face.delete_records("feed", match=["tag", "Eq", "0"])
    face = lives.restart()
    assert read(face, from_seq=0) == ([2, 4, 5, 7, 8], None)
    face = lives.crash()
    assert read(face, from_seq=0, limit=5) == ([2, 4, 5, 7, 8], None)


def test_a_feed_with_durability_memory_loses_records_but_not_numbering_in_a_restart_c2_5(
    lives: Lives,
) -> None:
    """A reader that was not at the head is notified of the loss.

    A reader at the head has lost nothing.
    """
    lives.face.put_topic("feed", durability="memory")
    lives.face.append("feed", texts(1, 2, 3))
    face = lives.restart()
    assert face.get_topic("feed")["config"]["durability"] == "memory"
    assert read(face, from_seq=1) == ([], (2, 3, "from_seq_too_old"))
    assert read(face, from_seq=3) == ([], None)
    assert face.append("feed", texts(4))["first_seq"] == 4
    assert read(face, from_seq=3) == ([4], None)


def test_a_feed_with_durability_fsync_loses_no_record_in_a_broker_crash_c2_5(
    lives: Lives,
) -> None:
    """Readers get no gap, and no number is used again."""
    lives.face.put_topic("feed", durable=True)
    lives.face.append("feed", texts(1, 2, 3))
    face = lives.crash()
    assert read(face, from_seq=1) == ([2, 3], None)
    first = face.append("feed", texts(4))["first_seq"]
    assert first > 3
    assert read(face, from_seq=3) == ([4], None)
    face = lives.restart()
    assert read(face, from_seq=1) == ([2, 3, 4], None)


def test_a_feed_with_durability_disk_reports_a_gap_after_a_broker_crash_c2_5(
    lives: Lives,
) -> None:
    """Written records survive. After them, readers get a gap, because later records may be lost."""
    lives.face.append("feed", texts(1, 2, 3))
    # Changes are written in order, and this call waits for its own.
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


def test_lost_records_from_before_a_change_of_feed_durability_are_reported_as_a_gap_c2_5(
    lives: Lives,
) -> None:
    """The durability class applies to records that are appended after the change."""
    lives.face.put_topic("feed", durability="memory")
    lives.face.append("feed", texts(1, 2, 3))
    lives.face.put_topic("feed", durable=True)
    for begin_again in (lives.crash, lives.restart):
        face = begin_again()
        head = face.get_topic("feed")["head_seq"]
        assert read(face, from_seq=1) == ([], (2, head, "from_seq_too_old"))


def test_restored_feed_records_expire_even_if_nobody_reads_or_appends_records_c2_2_c2_5(
    lives: Lives,
) -> None:
    """Records expire even if nothing reads or writes. Otherwise they would use space for ever."""
    lives.face.put_topic("feed", ttl_ms=1000)
    lives.face.append("feed", texts(1))
    lives.restart()
    engine = lives.emulator.engine
    assert engine.kept_bytes > 0
    lives.emulator.clock.advance(2)
    eventually(lambda: engine.kept_bytes == 0)


def test_a_label_of_a_topic_shows_and_sets_the_durability_class_of_its_feed_c2_5(
    lives: Lives,
) -> None:
    """A Google client reads and sets the durability class as a label of the topic."""
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


def test_a_topic_recreated_after_a_broker_restart_has_another_epoch_c2_5(lives: Lives) -> None:
    """A reader notices the new life by the epoch."""
    lives.face.append("feed", texts("old"))
    old = lives.face.read("feed")["epoch"]
    lives.face.delete_topic("feed")
    lives.face.append("feed", texts("new"))
    face = lives.restart()
    answer = face.read("feed", from_seq=1, epoch=old)
    assert answer["tombstone"]["reason"] == "recreated"
    assert [record["data"] for record in answer["records"]] == ["new"]


def test_watch_sessions_and_idempotency_keys_do_not_survive_a_broker_restart_c2_5(
    lives: Lives,
) -> None:
    """A watch must start again. An append that is repeated across a restart is stored twice."""
    lives.face.append("feed", texts(1), idempotency_key="key")
    watch = lives.face.watch({"feed": {"from_seq": 0}})
    data_of(watch.next())
    watch.close()
    face = lives.restart()
    assert not face.append("feed", texts(1), idempotency_key="key")["deduped"]
