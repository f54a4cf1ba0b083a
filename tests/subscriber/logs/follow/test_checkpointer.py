"""The intervals at which the position is saved."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from pullstream import SubscriberClient
from pullstream.follow import Checkpoint, CheckpointError, CheckpointFile
from pullstream.logs.follow.checkpointer import Checkpointer
from pullstream.logs.follow.stores import FileStore
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import PermissionDenied, Unavailable


class Notes:
    """A store that records the saved positions."""

    def __init__(self) -> None:
        self.saved: list[int] = []
        self.error: Exception | None = None

    def open(self, topic: str) -> Checkpoint | None:
        if self.error is not None:
            raise self.error
        return Checkpoint(10, 1)

    def save(self, checkpoint: Checkpoint) -> None:
        if self.error is not None:
            raise self.error
        self.saved.append(checkpoint.seq)

    def close(self) -> None:
        self.saved.append(-1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def keeper(notes: Notes, clock: ManualClock) -> Checkpointer:
    keeper = Checkpointer(notes, every=3, seconds=2.0, clock=clock)
    assert keeper.open("topic") == Checkpoint(10, 1)
    return keeper


def test_the_checkpointer_saves_the_position_after_the_configured_number_of_records(
    keeper: Checkpointer, notes: Notes
) -> None:
    """Records are counted from the last save."""
    for seq in range(11, 21):
        keeper.passed(seq, 1)
    assert notes.saved == [13, 16, 19]
    assert (keeper.position, keeper.kept) == (Checkpoint(20, 1), Checkpoint(19, 1))


def test_the_checkpointer_saves_the_position_after_the_configured_seconds(
    keeper: Checkpointer, notes: Notes, clock: ManualClock
) -> None:
    """Seconds count from the first unsaved record. `due` gives the time for the next save."""
    clock.advance(100)
    keeper.passed(11, 1)
    assert keeper.due == 102
    clock.advance(2)
    keeper.passed(12, 1)
    assert notes.saved == [12]
    assert keeper.due is None


def test_the_checkpointer_does_not_save_a_position_that_is_already_saved(
    keeper: Checkpointer, notes: Notes
) -> None:
    """A position that is already saved is not saved again."""
    keeper.moved(Checkpoint(10, 1))
    keeper.save()
    assert (notes.saved, keeper.due) == ([], None)
    keeper.moved(Checkpoint(12, 1))
    keeper.save()
    keeper.save()
    assert notes.saved == [12]


def test_the_checkpointer_saves_positions_regularly_even_if_no_record_passes_the_filter(
    keeper: Checkpointer, notes: Notes, clock: ManualClock
) -> None:
    """A filter may pass no record during the whole time of catching up."""
    for seq in (1000, 2000, 3000):
        keeper.moved(Checkpoint(seq, 1))
        clock.advance(1.0)
    assert notes.saved == [3000]


def test_the_checkpointer_retries_a_save_if_the_checkpoint_store_is_unavailable(
    keeper: Checkpointer, notes: Notes, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The retry comes after the usual interval, with a warning."""
    notes.error = Unavailable("away")
    with caplog.at_level(logging.WARNING):
        for seq in (11, 12, 13):
            keeper.passed(seq, 1)
    assert "13 could not be saved" in caplog.text
    assert keeper.due == 2.0
    with pytest.raises(Unavailable):
        keeper.open("topic")
    notes.error = None
    keeper.save()
    assert notes.saved == [13]


def test_a_permanent_error_of_the_checkpoint_store_is_raised_as_checkpoint_error(
    keeper: Checkpointer, notes: Notes
) -> None:
    """Permanent errors of every kind become CheckpointError."""
    keeper.passed(11, 1)
    for error in (PermissionDenied("no"), ZeroDivisionError(), CheckpointError("full")):
        notes.error = error
        with pytest.raises(CheckpointError):
            keeper.save()
        with pytest.raises(CheckpointError):
            keeper.open("topic")


def test_a_checkpoint_file_can_store_every_64_bit_topic_epoch(tmp_path: Path) -> None:
    """An epoch can use all 64 bits."""
    for checkpoint in (Checkpoint(2**62, 2**64 - 1), Checkpoint(0, 1)):
        file = FileStore(CheckpointFile(tmp_path / "positions.db"))
        file.open("topic")
        file.save(checkpoint)
        file.close()
        assert file.open("topic") == checkpoint
        file.close()


@pytest.mark.parametrize("path", ["", ":memory:", Path(":memory:")])
def test_a_follower_refuses_a_checkpoint_file_name_that_sqlite_keeps_in_memory(
    path: str | Path,
) -> None:
    """SQLite keeps a database of such a name in memory."""
    with pytest.raises(ValueError, match="would save nothing"):
        CheckpointFile(path)
    client = SubscriberClient(endpoint="localhost:1")
    with pytest.raises(ValueError, match="would save nothing"):
        client.follow("projects/p/topics/t", print, checkpoint=path)
    client.close()
