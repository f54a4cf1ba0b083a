"""Checkpoints of a follower, and storage that fails."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pullstream import CheckpointFile, ServerCursor
from pullstream.feeds import GapReason
from pullstream.follow import Checkpoint, CheckpointError, CloseReason
from pullstream_emulator import Emulator
from pullstream_protocol.errors import Unavailable
from tests.contract.following import TOPIC, Followed, Held, followed, kept_in
from tests.subscriber.streaming.fakes import eventually

CURSOR = "projects/test-project/cursors/billing"


def test_several_followers_can_store_their_positions_in_one_checkpoint_file_c1_2(
    here: Followed, tmp_path: Path
) -> None:
    """Each follower has its own name in the file."""
    path = tmp_path / "positions.db"
    here.append(5)
    here.live(checkpoint=CheckpointFile(path, "billing"), after=2)
    billing = here.diary
    here.live(checkpoint=CheckpointFile(path, "audit"))
    here.append(1)
    here.diary.wait_for(lambda: 6 in here.diary.seqs)
    billing.wait_for(lambda: billing.seqs == [3, 4, 5, 6])
    here.client.close()
    assert kept_in(path) == {"audit": 6, "billing": 6}


def test_followers_of_several_topics_can_share_one_checkpoint_object_c1_2(
    here: Followed, tmp_path: Path
) -> None:
    """The followers do not affect each other, even if one of them is refused."""
    file = CheckpointFile(tmp_path / "positions.db")
    here.append(1)
    first = here.live(checkpoint=file)
    with followed(here.emulator, TOPIC + "-2") as other:
        other.append(1)
        other.live(checkpoint=file).close()
    for _ in range(2):
        assert isinstance(here.follow(checkpoint=file).exception(20), CheckpointError)
    here.append(1)
    eventually(lambda: first.position.seq == 2)
    assert first.close()
    assert kept_in(tmp_path / "positions.db") == {TOPIC: 2, TOPIC + "-2": 1}


def test_a_second_follower_that_uses_the_same_name_in_a_checkpoint_file_is_refused_c1_2(
    here: Followed, tmp_path: Path
) -> None:
    """A second follower is refused, in any process, until the first one has ended."""
    path = tmp_path / "positions.db"
    here.append(1)
    first = here.live(checkpoint=path)
    second = here.follow(checkpoint=path)
    assert isinstance(second.exception(20), CheckpointError)
    assert here.diary.closed.reason is CloseReason.CHECKPOINT_ERROR
    assert here.diary.seqs == []
    first.close()
    here.live(checkpoint=path)


def test_a_follower_refuses_a_checkpoint_of_another_topic_c1_2(
    here: Followed, tmp_path: Path
) -> None:
    """A file and the broker refuse the position of another topic."""
    stores = [CheckpointFile(tmp_path / "positions.db", "billing"), ServerCursor(CURSOR)]
    here.append(1)
    with followed(here.emulator, TOPIC + "-2") as other:
        other.append(1)
        for store in stores:
            here.live(checkpoint=store).close()
            assert isinstance(other.follow(checkpoint=store).exception(20), CheckpointError)


def test_a_follower_with_an_unusable_checkpoint_file_ends_before_its_first_read_c1_2(
    here: Followed, tmp_path: Path
) -> None:
    """The follower ends before it begins.

    It handles no record whose position it could not store.
    """
    here.append(1)
    (tmp_path / "text").write_text("This is no database, and long enough for SQLite to see that.")
    for path in (tmp_path / "no folder" / "positions.db", tmp_path / "text"):
        assert isinstance(here.follow(checkpoint=path).exception(20), CheckpointError)
        assert here.diary.seqs == []


def test_the_lock_of_a_checkpoint_file_applies_to_all_links_to_the_file_c1_2(
    here: Followed, tmp_path: Path
) -> None:
    """The lock belongs to the file, not to one of its names."""
    (tmp_path / "link.db").symlink_to(tmp_path / "positions.db")
    here.append(1)
    here.live(checkpoint=tmp_path / "positions.db")
    second = here.follow(checkpoint=tmp_path / "link.db")
    assert "another follower uses the name" in str(second.exception(20))


def test_the_error_for_a_checkpoint_file_that_cannot_be_locked_has_the_reason_c1_2(
    here: Followed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error message describes the problem with the file."""

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pullstream.logs.follow.stores.FileLock", refuse)
    here.append(1)
    error = here.follow(checkpoint=tmp_path / "positions.db").exception(20)
    assert isinstance(error, CheckpointError)
    assert "cannot open the checkpoint file" in str(error)


class Fickle:
    """A user-defined store that fails when a test wants."""

    def __init__(self, kept: Checkpoint | None = None) -> None:
        self.kept = kept
        self.errors: list[Exception] = []
        self.closed = threading.Event()

    def open(self, topic: str) -> Checkpoint | None:
        self._fail()
        return self.kept

    def save(self, checkpoint: Checkpoint) -> None:
        self._fail()
        self.kept = checkpoint

    def close(self) -> None:
        self.closed.set()

    def _fail(self) -> None:
        if self.errors:
            raise self.errors.pop(0)


def test_a_stored_position_overrides_the_after_argument_of_a_follower_c1_2(here: Followed) -> None:
    """The stored position is used, and `after` is ignored."""
    here.append(5)
    store = Fickle(Checkpoint(3))
    follower = here.live(checkpoint=store, after=1)
    assert here.diary.seqs == [4, 5]
    follower.close()
    assert store.kept is not None
    assert store.kept.seq == 5
    assert store.closed.is_set()


def test_a_follower_retries_operations_of_a_checkpoint_store_that_fail_transiently_c1_2(
    here: Followed,
) -> None:
    """Loading the position and saving it are retried."""
    store = Fickle()
    store.errors = [Unavailable("away"), Unavailable("away")]
    here.append(5)
    here.live(checkpoint=store, checkpoint_every=1, checkpoint_seconds=0.01)
    store.errors = [Unavailable("away")]
    here.append(1)
    eventually(lambda: store.kept is not None and store.kept.seq == 6)
    assert here.diary.seqs == [1, 2, 3, 4, 5, 6]


def test_a_permanent_error_of_its_checkpoint_store_ends_a_follower_c1_2(
    here: Followed,
) -> None:
    """If the follower continued, a crash would repeat all records since the failure."""
    store = Fickle()
    here.append(5)
    follower = here.live(checkpoint=store, checkpoint_every=1)
    store.errors = [OSError("disk full")]
    here.append(10)
    error = follower.exception(20)
    assert isinstance(error, CheckpointError)
    assert "disk full" in str(error)
    assert here.diary.closed.reason is CloseReason.CHECKPOINT_ERROR
    assert here.diary.seqs == [1, 2, 3, 4, 5, 6]


def test_a_follower_saves_its_position_after_a_while_if_no_further_record_arrives_c1_12(
    here: Followed,
) -> None:
    """The position is saved after a time, without further records and before the save interval."""
    kept: list[int] = []
    here.append(1)
    here.live(checkpoint=lambda checkpoint: kept.append(checkpoint.seq), checkpoint_seconds=0.05)
    eventually(lambda: kept[-1:] == [1])
    here.append(1)
    eventually(lambda: kept[-1:] == [2])


def test_a_follower_started_at_the_end_of_a_topic_saves_its_start_position_c1_1(
    here: Followed, tmp_path: Path
) -> None:
    """A second start at the end does not skip records that were appended between the two."""
    here.append(3)
    here.live("tail", checkpoint=tmp_path / "positions.db").close()
    here.append(2)
    here.live("tail", checkpoint=tmp_path / "positions.db")
    assert here.diary.seqs == [4, 5]


@pytest.mark.parametrize("cursor", [False, True])
def test_a_follower_reports_a_recreated_topic_and_reads_it_from_the_beginning_c1_15(
    here: Followed, tmp_path: Path, cursor: bool
) -> None:
    """The position includes the epoch of the topic. A cursor is deleted with its topic."""
    store = ServerCursor(CURSOR) if cursor else tmp_path / "positions.db"
    here.append(9)
    here.live(checkpoint=store).close()
    here.delete()
    here.append(4)
    here.live(checkpoint=store)
    assert here.diary.seqs == [1, 2, 3, 4]
    reasons = [gap.reason for gap in here.diary.gaps]
    assert reasons == ([] if cursor else [GapReason.RECREATED])
    here.append(1)
    here.diary.wait_for(lambda: 5 in here.diary.seqs)


def test_a_follower_reports_that_its_topic_was_recreated_while_it_followed_the_topic_c1_15(
    here: Followed,
) -> None:
    """The follower's stream ends, and the next read reports the new topic."""
    held = Held(here)
    here.append(2)
    here.follow(handler=held)
    here.diary.wait_for(lambda: here.diary.seqs == [1])
    here.delete()
    here.append(1)
    held.gate.set()
    here.diary.wait_for(lambda: here.diary.seqs == [1, 2, 1])
    assert [gap.reason for gap in here.diary.gaps] == [GapReason.RECREATED]


def test_a_follower_continues_at_its_saved_position_after_a_broker_restart_c1_1(
    tmp_path: Path,
) -> None:
    """With a data directory the topic has the same epoch, and no record is handled again."""
    with (
        Emulator(data_dir=tmp_path / "broker", durability="fsync") as emulator,
        followed(emulator) as here,
    ):
        here.append(4)
        follower = here.live(checkpoint=tmp_path / "positions.db")
        emulator.stop()
        here.diary.wait_for_turn(2)
        emulator.start()
        here.diary.wait_for_turn(3)
        here.append(2)
        here.diary.wait_for(lambda: 6 in here.diary.seqs)
        follower.close()
        assert here.diary.seqs == [1, 2, 3, 4, 5, 6]
        assert here.diary.gaps == []
